"""Every error, once: its ID, its exit code, and what a reader of it needs. Long, because it is the list.

An error says what was found (evidence), what it did or did not change (effect) and the next command
(remedy). Nothing outside `cli.py` turns one into text for a person. Warnings stand here too: they are
findings about a trial that do not stop it, each with the reason why it matters (`dbbench explain ID`).
"""

from __future__ import annotations

from typing import ClassVar, Final

EXIT_OK: Final = 0
EXIT_TRIAL_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_REGRESSION: Final = 3  # only `compare --gate` and `nightly`
EXIT_INCONCLUSIVE: Final = 4  # likewise
EXIT_REFUSED: Final = 5
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143


class DbbenchError(Exception):
    """The family. `str(error)` is the evidence alone; `cli.py` prints the whole."""

    id: ClassVar[str] = "E999"
    exit_code: ClassVar[int] = EXIT_TRIAL_FAILED
    title: ClassVar[str] = "a fault of dbbench itself"

    def __init__(
        self, evidence: str, *, where: str | None = None, effect: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.where = where
        self.effect = effect
        self.remedy = remedy


# --- E0xx: what the person asked for ---------------------------------------------------------------


class PlanInvalid(DbbenchError):
    """One or more faults of a plan or data file; the evidence has one line a fault, each with file:line."""

    id, exit_code, title = "E001", EXIT_USAGE, "the plan has errors"


class UnknownName(DbbenchError):
    id, exit_code, title = "E002", EXIT_USAGE, "no such name"


class FileMissing(DbbenchError):
    id, exit_code, title = "E003", EXIT_USAGE, "no such file"


class RunNameTaken(DbbenchError):
    id, exit_code, title = "E004", EXIT_USAGE, "a run of that name exists and holds another plan"


class FileTaken(DbbenchError):
    id, exit_code, title = "E005", EXIT_USAGE, "a file of that name exists"


# --- E1xx: safety: refused, nothing changed --------------------------------------------------------


class DeviceUnusable(DbbenchError):
    """Not there, not a block device, unreadable, or not the one that the plan's identity names."""

    id, exit_code, title = "E101", EXIT_REFUSED, "the device cannot be used"


class DeviceInUse(DbbenchError):
    """Mounted, swap, in fstab, held, open, or an ancestor of one that is. Never yields to --wipe."""

    id, exit_code, title = "E104", EXIT_REFUSED, "the device is in use"


class DeviceNotEmpty(DbbenchError):
    """A signature was found; yields to --wipe with the device's identity typed."""

    id, exit_code, title = "E106", EXIT_REFUSED, "the device is not empty"


class DeviceLocked(DbbenchError):
    id, exit_code, title = "E107", EXIT_REFUSED, "another process works on the device"


class DirectoryRefused(DbbenchError):
    """A directory that may not be used as a target (/, a system directory, not empty of ours)."""

    id, exit_code, title = "E108", EXIT_REFUSED, "the directory cannot be used"


# --- E2xx: environment: the machine lacks something, nothing changed -------------------------------


class ProgramMissing(DbbenchError):
    id, exit_code, title = "E201", EXIT_USAGE, "a program is missing"


class NotRoot(DbbenchError):
    id, exit_code, title = "E202", EXIT_USAGE, "root is needed"


class DiskTooSmall(DbbenchError):
    id, exit_code, title = "E203", EXIT_USAGE, "too little free disk"


class NamespacesRefused(DbbenchError):
    id, exit_code, title = "E204", EXIT_USAGE, "the kernel refuses private namespaces"


class ProgramNotStarted(DbbenchError):
    """The kernel refused to start a program that is there: no more processes or memory, not executable."""

    id, title = "E345", "a program could not be started"


class ServerAnswered(DbbenchError):
    """An error of the server to a question of our own: its counters, its log, a checkpoint."""

    id, title = "E347", "the server answered with an error"


class TrialDied(DbbenchError):
    """Its process was killed, or ended without a word. The run goes on with the next."""

    id, title = "E348", "the trial's process died"


class TrialStuck(DbbenchError):
    """It sits in a call that no signal ends, beyond its phase's deadline; it was killed. The run goes on."""

    id, title = "E349", "the trial did not heed its deadline"


class AnswerUnknown(DbbenchError):
    """A program ended well and printed what no version of it prints that is known here."""

    id, title = "E346", "a program's output was not understood"


class PackageConflict(DbbenchError):
    id, exit_code, title = "E205", EXIT_USAGE, "a package conflicts with what is installed"


class KernelLacks(DbbenchError):
    id, exit_code, title = "E206", EXIT_USAGE, "this kernel lacks what the fs setup needs"


class MemoryExceeded(DbbenchError):
    """The kernel killed a server's process: it needed more memory than the plan gives it. The trial fails."""

    id, title = "E210", "the server needed more than its memory"


class CoresMissing(DbbenchError):
    """The plan names cores or a NUMA node that this machine does not have, or that we may not use."""

    id, exit_code, title = "E211", EXIT_USAGE, "the machine has not the cores that the plan names"


class RehearsalUnavailable(DbbenchError):
    id, exit_code, title = "E207", EXIT_USAGE, "there is no second kernel for this machine"


class RehearsalBuildFailed(DbbenchError):
    id, title = "E208", "the second kernel could not be built"


class RehearsalFailed(DbbenchError):
    id, title = "E209", "the second kernel failed"


class ConditionImpossible(DbbenchError):
    """`condition` of the plan asks for what this device or machine cannot do."""

    id, exit_code, title = "E212", EXIT_USAGE, "the device cannot be brought into the condition"


class StudyImpossible(DbbenchError):
    id, exit_code, title = "E340", EXIT_USAGE, "the study cannot be run here"


# --- E3xx: filesystem ------------------------------------------------------------------------------


class MkfsFailed(DbbenchError):
    id, title = "E301", "mkfs failed"


class MountFailed(DbbenchError):
    id, title = "E302", "mount failed"


class ClaimWrong(DbbenchError):
    """The fs setup claims other durability flags than the kernel reports."""

    id, title = "E303", "the fs setup's claim is not what the kernel reports"


class FilesystemGone(DbbenchError):
    id, title = "E304", "the filesystem went bad"


class FilesystemFull(DbbenchError):
    id, title = "E305", "the filesystem is full"


class LoopFailed(DbbenchError):
    id, title = "E306", "the loop device could not be made as asked"


class UnmountFailed(DbbenchError):
    id, title = "E307", "the filesystem could not be unmounted"


class OptionNotInForce(DbbenchError):
    """An option that acts on files when they are made (nodatacow, +C, compress) is not on the restored files."""

    id, title = "E308", "an option is not in force on the restored files"


class ZfsUnavailable(DbbenchError):
    """There is no driver for pools: no module, no zfs-fuse, or its process did not start."""

    id, title = "E309", "no driver for ZFS could be had"


class WalElsewhere(DbbenchError):
    """With `[device.wal]` or a volume for the log: a file of the running server's log lies elsewhere."""

    id, title = "E318", "the write-ahead log is not where it was asked for"


class LayerFailed(DbbenchError):
    """md, LVM or dm-crypt could not be made, or is not what was asked for."""

    id, title = "E310", "a layer below the filesystem could not be made as asked"


class LayerStuck(DbbenchError):
    id, title = "E311", "a layer below the filesystem could not be taken apart"


class SnapshotLost(DbbenchError):
    """The room for the snapshot that a setup holds was full: what was measured is another setup."""

    id, title = "E312", "the snapshot that was to be held did not hold"


class OperationFailed(DbbenchError):
    """An operation after the load was begun and did not end. The trial's figures stand; W030 tells it."""

    id, title = "E315", "an operation failed"


class FilesystemDamaged(DbbenchError):
    """fsck or scrub found damage on the filled filesystem: its figures are not to be trusted."""

    id, title = "E316", "the check of the filesystem found damage"


class CopyWrong(DbbenchError):
    """A snapshot, clone or roll-back lacks rows that were acknowledged before it, or has later ones."""

    id, title = "E317", "a snapshot does not hold what it should"


class DataInconsistent(DbbenchError):
    """The dataset's own consistency conditions do not hold after the load."""

    id, title = "E325", "the data is not consistent after the load"


class ApplyUnequal(DbbenchError):
    """After the whole log was applied a table is not what it is on the primary."""

    id, title = "E330", "the standby is not equal to its primary"


class ApplyStuck(DbbenchError):
    """Log was handed over, and the standby applies none of it."""

    id, title = "E331", "the standby does not go on"


class ScriptInvalid(DbbenchError):
    """A script of SQL steps that is none; the evidence says which line of it."""

    id, exit_code, title = "E335", EXIT_USAGE, "a script of SQL steps is wrong"


class RecordingUnreadable(DbbenchError):
    """A file that is no recording of statements, or one of which none can be run again."""

    id, exit_code, title = "E326", EXIT_USAGE, "no statements could be taken from the recording"


class LiveServerUnreadable(DbbenchError):
    id, exit_code, title = "E327", EXIT_USAGE, "the running server could not be read"


class SourceMissing(DbbenchError):
    """What a plan names as `source` is not there, or is nothing that a dataset can be made of."""

    id, exit_code, title = "E320", EXIT_USAGE, "the source is nothing that can be loaded"


class SourceInUse(DbbenchError):
    """The data directory of a server that runs, or of one that did not stop."""

    id, exit_code, title = "E321", EXIT_REFUSED, "the source is in use"


class SourceForeign(DbbenchError):
    """Of another engine, another release, or with pages of another size."""

    id, exit_code, title = "E322", EXIT_USAGE, "the source is not for this server"


class SourceIncomplete(DbbenchError):
    """A backup that lacks a tablespace, its log or a part; a name of the plan that is not in it."""

    id, exit_code, title = "E323", EXIT_USAGE, "the source lacks something"


class SourceChanged(DbbenchError):
    """It is another one than when the run was begun, and no copy of the earlier one is left."""

    id, exit_code, title = "E324", EXIT_USAGE, "the source has changed"


class ClientUnreachable(DbbenchError):
    """ssh does not get there, or only by asking a person."""

    id, exit_code, title = "E328", EXIT_USAGE, "the client's host does not answer"


class ClientLacks(DbbenchError):
    """A program is missing there, of another version than is needed, or its clock is far behind."""

    id, exit_code, title = "E329", EXIT_USAGE, "the client's host lacks something"


class AddressUnusable(DbbenchError):
    """Not of this machine, taken, or not to be reached from the client's host."""

    id, exit_code, title = "E332", EXIT_USAGE, "the server's address cannot be used"


class PasswordUnusable(DbbenchError):
    """The file is not there, others can read it, or it holds no password."""

    id, exit_code, title = "E333", EXIT_USAGE, "the password file cannot be used"


class ClientLost(DbbenchError):
    """ssh ended, or did not answer, while a trial was under way."""

    id, title = "E334", "the connection to the client's host broke"


# --- E4xx: engine ----------------------------------------------------------------------------------


class EngineStartFailed(DbbenchError):
    id, title = "E401", "the server did not start"


class EngineDied(DbbenchError):
    id, title = "E402", "the server died"


class DataCorrupt(DbbenchError):
    id, title = "E403", "the integrity check failed"


class EngineStopFailed(DbbenchError):
    id, title = "E404", "the server did not stop cleanly"


class SettingRefused(DbbenchError):
    id, title = "E405", "the server runs with other settings than asked"


# --- E5xx: dataset ---------------------------------------------------------------------------------


class DatasetBuildFailed(DbbenchError):
    id, title = "E501", "the dataset could not be built"


class RestoreFailed(DbbenchError):
    id, title = "E502", "the dataset could not be restored"


class RestoreUnequal(DbbenchError):
    id, title = "E503", "the restored dataset is not the golden copy"


# --- E6xx: load ------------------------------------------------------------------------------------


class DriverFailed(DbbenchError):
    id, title = "E601", "the load generator failed"


class ClientErrors(DbbenchError):
    """Clients aborted, reconnected or ignored errors: what was measured is not the load that was asked for."""

    id, title = "E602", "clients aborted or reconnected"


class LoadEndedEarly(DbbenchError):
    id, title = "E603", "the load ended before the window did"


class NoProgress(DbbenchError):
    id, title = "E604", "no transaction was finished in the window"


class FlushesMissing(DbbenchError):
    """Commits without one device flush though the class is full: somebody swallows them."""

    id, title = "E605", "commits reached no device flush"


# --- E7xx: samplers --------------------------------------------------------------------------------


class SamplerFailed(DbbenchError):
    id, title = "E701", "a sampler could not be started or read"


# --- E8xx: results ---------------------------------------------------------------------------------


class ResultDamaged(DbbenchError):
    id, title = "E801", "a result is truncated or altered"


class RunMissing(DbbenchError):
    id, exit_code, title = "E802", EXIT_USAGE, "no such run"


class RunLocked(DbbenchError):
    id, exit_code, title = "E803", EXIT_REFUSED, "another process works on this run"


class ResultsUnwritable(DbbenchError):
    id, exit_code, title = "E804", EXIT_USAGE, "the results folder cannot be written"


class NightlyLocked(DbbenchError):
    id, exit_code, title = "E805", EXIT_REFUSED, "another nightly of this plan is going on"


class NightMissing(DbbenchError):
    id, exit_code, title = "E806", EXIT_INCONCLUSIVE, "there was no night lately"


class ImportRefused(DbbenchError):
    """A link, a path that leads out, or another result where one stands already."""

    id, exit_code, title = "E830", EXIT_REFUSED, "a result cannot be taken over"


class FleetUnreachable(DbbenchError):
    id, exit_code, title = "E831", EXIT_USAGE, "the fleet's scheduler or hosts cannot be reached"


class FleetMissing(DbbenchError):
    """dask.distributed, the extra `fleet`, is not installed."""

    id, exit_code, title = "E832", EXIT_USAGE, "the fleet's engine is not installed"


class FleetInsecure(DbbenchError):
    """A scheduler speaks pickle to root: beyond this machine only with certificates on both sides."""

    id, exit_code, title = "E833", EXIT_REFUSED, "a fleet beyond this machine needs certificates"


class HostLost(DbbenchError):
    """A host refused, or was not heard for long, and its blocks could not be dealt to another."""

    id, title = "E834", "a host of the fleet did not drive its blocks"


# --- E82x: the power-cut lab -----------------------------------------------------------------------


class LabUnavailable(DbbenchError):
    """The lab's disk cannot be had on this machine: no mfusepy, libfuse or /dev/fuse, or too little memory."""

    id, exit_code, title = "E820", EXIT_USAGE, "there is no power-cut lab on this machine"


class LabContradicts(DbbenchError):
    """A setup lost what its computed durability class promises: the program computes that class wrongly."""

    id, title = "E821", "the power-cut lab contradicts a durability class"


class LabBlind(DbbenchError):
    """A control that must lose did not: the lab would not see a loss, so what it did not see says nothing."""

    id, title = "E822", "the power-cut lab is blind"


class LabInvalid(DbbenchError):
    """More than one cut in ten was none: what is left of them is no sample."""

    id, title = "E823", "too many cuts of the power-cut lab are invalid"


# --- E9xx: the program -----------------------------------------------------------------------------


class CommandFailed(DbbenchError):
    """A program ended with an exit status that was not allowed. Callers give it their own meaning."""

    id, title = "E900", "a program failed"


class DeadlinePassed(DbbenchError):
    id, title = "E901", "a phase or program took longer than its deadline"


class Interrupted(DbbenchError):
    id, exit_code, title = "E902", EXIT_INTERRUPTED, "interrupted"


class Terminated(DbbenchError):
    id, exit_code, title = "E903", EXIT_TERMINATED, "terminated"


def all_errors() -> dict[str, type[DbbenchError]]:
    """ID -> class, for `dbbench explain` and the docs."""
    found: dict[str, type[DbbenchError]] = {DbbenchError.id: DbbenchError}
    for kind in DbbenchError.__subclasses__():
        found[kind.id] = kind
    return dict(sorted(found.items()))


WARNINGS: Final[dict[str, tuple[str, str]]] = {
    # ID: (what it says in a few words, why it matters)
    "W001": (
        "short windows",
        "A window of seconds sees neither checkpoints nor the filesystem's own periods (btrfs commits every "
        "30 s). Such figures are for seeing that all works, not for buying.",
    ),
    "W002": (
        "burst: no checkpoint in the window",
        "Until the first checkpoint a database writes only its log. What the filesystem does with the data "
        "files is not in this figure.",
    ),
    "W003": (
        "drain above 10 % of the window",
        "Throughput was borrowed: pages were still dirty at the end of the window and took this long to be "
        "written. Read the sustained tps.",
    ),
    "W004": ("too short to judge steadiness", "A test for trends needs a window of 60 s or more."),
    "W005": (
        "no steady state",
        "Throughput had a trend over the window: its mean depends on when one looks.",
    ),
    "W010": (
        "cold cache not proved",
        "No page of the data files was resident before the cache was dropped, or the sample read brought "
        "no bytes from the device, so the drop could not be shown to have worked.",
    ),
    "W011": ("loop device without direct I/O", "The host's page cache stood between filesystem and disk."),
    "W012": ("background load", "Other processes used CPU or the disk while this trial was measured."),
    "W013": ("a sampler ended early", "Part of the telemetry of this trial is missing."),
    "W014": ("seconds without data", "A sampler has gaps in the window; they are drawn as gaps."),
    "W015": ("steal", "The hypervisor took CPU time away from this machine while it was measured."),
    "W016": (
        "client-bound",
        "The load generator used more than 80 % of the cores that it can use at once: it was the limit and not the "
        "server, and a faster filesystem could not show.",
    ),
    "W017": (
        "image shrank",
        "The loop image has fewer blocks than before: something discarded, and writes paid for allocation "
        "that other trials did not pay.",
    ),
    "W018": (
        "settings changed in the run",
        "Host or block layer settings differ from the run's first trial. Loop devices keep what was set on them when "
        "their number is used again; a power daemon changes a governor in mid-run; read-ahead alone moves a scan.",
    ),
    "W019": ("client errors", "Some transactions failed and were retried or counted as errors."),
    "W020": ("kernel messages", "The kernel logged errors about the device of this trial."),
    "W021": (
        "small-device geometry",
        "Below 64 GiB mkfs chooses fewer allocation groups and a smaller journal than on a server's disk.",
    ),
    "W022": (
        "mixed durability classes",
        "The compared cells do not promise the same after a power cut. The faster one may be faster because "
        "it promises less.",
    ),
    "W023": (
        "clock was set",
        "The system clock moved during the trial; durations are from the monotonic clock.",
    ),
    "W024": ("device flushes not measurable", "Nothing below this filesystem counts flushes here."),
    "W038": (
        "memory not limited by the kernel",
        "The server's caches have the sizes of the plan's memory, but the page cache may grow beyond it: what should "
        "come from the disk may come from memory, and more of it on a machine with more. That results are published "
        "without the size of the cache beside the data is an old complaint: see the survey of 106 papers by Traeger, "
        "Zadok, Joukov and Wright (2008).",
    ),
    "W039": (
        "server and load generator share cores",
        "What the load generator takes, the server lacks: a faster filesystem makes it busier and so looks slower "
        "than it is. The TPC's rules keep the driver out of the measured system for that reason.",
    ),
    "W040": (
        "the device was another than in its block",
        "The short write probe before this trial was more than 10 % off the median of its block: something changed in "
        "the device itself between trials (cleaning up, heat, a neighbour), which no filesystem is to blame for. "
        "SNIA's test specification for SSDs has a disk purged and written until it is steady before anything counts.",
    ),
    "W041": (
        "warm-up shorter than the filesystem's periods",
        "Filesystems hold work back and write it out at intervals of their own. A window that begins before three of "
        "them have passed has the first in it for one filesystem and not for another.",
    ),
    "W042": (
        "device-limited",
        "The device stood flat at what the bare device gives: a limit of its own or of its provider held the trial, "
        "not the filesystem. Cloud disks are sold with such limits, and with credits that run out in mid-run (Amazon's "
        "gp2 volumes give 3000 IOPS until theirs are used up): then all filesystems look the same, or the first looks "
        "best.",
    ),
    "W043": (
        "direct I/O fell back to the page cache",
        "The server asked for direct I/O and the filesystem served it through the page cache, as btrfs does for "
        "checksummed or compressed files: this arm has a second cache that the others do not have.",
    ),
    "W026": (
        "ZFS in a process, not in the kernel",
        "The pool was served by zfs-fuse: every request passes through a process, and its pool version has no lz4 or "
        "zstd. It shows that a plan works and how settings compare with each other, not how fast OpenZFS is. Nor is it "
        "as safe: an fsync of a file that was closed since it was written does nothing, so its class is no-barrier.",
    ),
    "W027": (
        "the ARC serves other pools too",
        "This kernel has other pools imported. The ARC is one for all: its size, hits and contents are not this "
        "filesystem's alone.",
    ),
    "W028": (
        "lazy initialisation",
        "The kernel writes the new filesystem's inode tables in the background, beside the load. Setups are made with "
        "it off; this one has it on.",
    ),
    "W030": (
        "an operation failed",
        "One of the plan's operations was begun after the load and did not end; the figures of the load are not "
        "touched by it.",
    ),
    "W116": (
        "cached: the file is smaller than twice the memory",
        "bonnie++ asks for a file of twice the memory: much of a smaller one is read again from the page cache, and "
        "its rates say how fast memory is.",
    ),
    "W117": (
        "the files were not read cold",
        "The page cache could not be emptied between creating and reading, or the filesystem has a cache of its own "
        "beside it: the rate of reading is that of memory, in whole or in part.",
    ),
    "W112": (
        "the statement beside the load ended after the window",
        "What it did to the others is told up to the end of the window only. Take a longer window, or a smaller table.",
    ),
    "W100": (
        "restored by reflink",
        "The data files share their blocks with a copy beside them. The first write of each block goes elsewhere, as "
        "in a snapshot or a clone: that is slower than the same filesystem is without, and breaks files into pieces.",
    ),
    "W101": (
        "settings of the source are not in force",
        "Servers run with dbbench's settings, the workload's, the fs setup's and the plan's. What the user's own "
        "server was told beside them (in its files, or by ALTER SYSTEM and ALTER DATABASE) is left out, so that arms "
        "differ in their filesystem alone. What the data needs belongs into the plan's `settings`.",
    ),
    "W102": (
        "one tablespace alone is on the filesystem",
        "The rest of the cluster, with its log, lies on another disk: commits are flushed there. The durability class "
        "is that of the filesystem under test alone.",
    ),
    "W103": (
        "the clocks of client and server moved apart",
        "The load generator's seconds are of its own host's clock. They are put into ours by the offset that was read "
        "before the load; after it the offset was another one, or it could not be read to a tenth of a second. Totals "
        "stand, the seconds of the series are displaced.",
    ),
    "W104": (
        "the client's host has another version of the load generator",
        "Load generator here and there are of different releases. Compare trials with the same one only: what a "
        "transaction costs the client is in its latency.",
    ),
    "W105": (
        "the client's host was busy with other work",
        "Others used a tenth or more of its processors in the window: the load generator may have waited for them, and "
        "its latencies with it.",
    ),
    "W113": (
        "the engine did not age its tables",
        "The load writes next to nothing, so that the factors of [age_engine] are not reached: what was measured is "
        "the fresh table alone.",
    ),
    "W025": ("the server logged errors", "Lines of level ERROR or worse are in the server's log."),
    "W108": (
        "no snapshots beside the load",
        "`[snapshots]` asks for what this fs setup cannot do while a server runs: the reason is given. The load ran as "
        "without them, and its figures are not those of an arm that was snapshotted.",
    ),
    "W109": (
        "a snapshot beside the load failed",
        "One that was begun did not end, or the server on its clone did not answer. None is taken after it: what the "
        "rest of the window was measured with is another load.",
    ),
    "W110": (
        "fewer snapshots than asked for",
        "Taking one, starting a server on it and dropping the oldest took longer than `every`: the next was begun "
        "late. Compare arms with the same number.",
    ),
    "W111": (
        "the apply rate fell",
        "The line through the kB/s of the seconds falls, and its 95 % interval does not hold a level one. A longer log "
        "would have been applied more slowly than this one: give `log_bytes` the size that you have.",
    ),
    "W106": (
        "the device did not answer",
        "For some seconds not one request ended while one waited. The kernel's log says nothing of that before the "
        "driver's timeout (30 s for most disks), and the filesystem can do nothing but wait: such seconds are the "
        "device's.",
    ),
    "W124": (
        "kernel messages lost",
        "The kernel's log ran over while the trial was driven: an error of the device may have stood in what is gone.",
    ),
    "W125": (
        "the kernel was in trouble",
        "It told of no memory, of a processor that hung or of faulty hardware while the trial was driven: no device of "
        "the trial is named, and any of its figures may be touched.",
    ),
    "W126": (
        "thermal throttling",
        "The processors were slowed down because they were hot: a later trial is slower than an earlier one.",
    ),
    "W127": (
        "foreign I/O",
        "Others read or wrote on the disk below while this trial was measured, and took its time.",
    ),
    "W128": (
        "the server's settings changed",
        "A setting of the plan, or one that decides when a commit is safe, was another after the load than before it.",
    ),
    "W129": (
        "processes of the trial were stopped",
        "Somebody stopped the server, the load generator or a recorder for some seconds (SIGSTOP, a debugger, a tool "
        "that limits CPU in this way), or the whole machine (a virtual one that was moved). What throughput and "
        "latency show of it is no filesystem's.",
    ),
    "W130": (
        "the page cache was dropped by others",
        "Somebody dropped the machine's page cache (/proc/sys/vm/drop_caches) while the load ran: what had been read "
        "was read again, from the disk.",
    ),
    "W131": (
        "memory was swapped",
        "Pages went to swap or came back from it while the load ran: memory was short, and the disk of the swap was "
        "measured too.",
    ),
    "W099": (
        "rehearsed in a second kernel: not comparable",
        "User-mode Linux has one CPU and is several times slower than the machine. That the trial worked is true; none "
        "of its figures says anything about a server.",
    ),
}
