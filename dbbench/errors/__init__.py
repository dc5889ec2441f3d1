"""Errors and warnings as sorted tables: ID, exit status, title, explanation and remedy.

An error has its evidence, what it did or did not change (effect) and the next command (remedy); only `cli.py` prints
one. `explanations.py` has the general meaning and remedy of each error, `warnings.py` the warnings.
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
    """The base class of all errors. `str(error)` is the evidence alone; `cli.py` prints all parts."""

    id: ClassVar[str] = "E999"
    exit_code: ClassVar[int] = EXIT_TRIAL_FAILED
    title: ClassVar[str] = "internal error in dbbench"

    def __init__(
        self, evidence: str, *, where: str | None = None, effect: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.where = where
        self.effect = effect
        self.remedy = remedy


def _kind(id: str, exit_code: int, title: str) -> type[DbbenchError]:
    """One row of the table: a class of its own, so that callers can catch it. Its name is its ID."""
    fields = {"id": id, "exit_code": exit_code, "title": title, "__module__": __name__}
    return type(id, (DbbenchError,), fields)


# Usage: the plan and other input
PlanInvalid: Final = _kind("E001", EXIT_USAGE, "the plan is invalid")
UnknownName: Final = _kind("E002", EXIT_USAGE, "the name is unknown")
FileMissing: Final = _kind("E003", EXIT_USAGE, "a file is missing or unreadable")
RunNameTaken: Final = _kind("E004", EXIT_USAGE, "the name of the run is invalid or belongs to another plan")
FileTaken: Final = _kind("E005", EXIT_USAGE, "the file already exists")
InputNotRegular: Final = _kind("E006", EXIT_USAGE, "an input file is not a regular file")
InputTooLarge: Final = _kind("E007", EXIT_USAGE, "an input file is too large")

# Devices that are refused for safety; nothing is changed
DeviceUnusable: Final = _kind("E101", EXIT_REFUSED, "the device cannot be used")
DeviceInUse: Final = _kind("E104", EXIT_REFUSED, "the device is in use")
DeviceNotEmpty: Final = _kind("E106", EXIT_REFUSED, "the device is not empty")
DeviceLocked: Final = _kind("E107", EXIT_REFUSED, "the device is locked by another process")
DirectoryRefused: Final = _kind("E108", EXIT_REFUSED, "the directory cannot be used")
DeviceChanged: Final = _kind("E109", EXIT_REFUSED, "another process changed the device")


# The machine
class ProgramMissing(DbbenchError):
    """`programs`: the names of all that are missing, where several are needed."""

    id, exit_code, title = "E201", EXIT_USAGE, "a program is not installed"
    programs: tuple[str, ...] = ()


NotRoot: Final = _kind("E202", EXIT_USAGE, "root privileges are required")
DiskTooSmall: Final = _kind("E203", EXIT_USAGE, "not enough disk space")
NamespacesRefused: Final = _kind("E204", EXIT_USAGE, "private namespaces are not permitted")
PackageConflict: Final = _kind("E205", EXIT_USAGE, "a package conflicts with an installed package")
KernelLacks: Final = _kind("E206", EXIT_USAGE, "the kernel does not support the fs setup or setting")
RehearsalUnavailable: Final = _kind("E207", EXIT_USAGE, "rehearsal is not available on this machine")
RehearsalBuildFailed: Final = _kind("E208", EXIT_TRIAL_FAILED, "the second kernel could not be built")
RehearsalFailed: Final = _kind("E209", EXIT_TRIAL_FAILED, "the second kernel failed")
MemoryExceeded: Final = _kind("E210", EXIT_TRIAL_FAILED, "the server exceeded its memory limit")
CoresMissing: Final = _kind("E211", EXIT_USAGE, "the plan names CPUs that this machine does not have")
ConditionImpossible: Final = _kind("E212", EXIT_USAGE, "the device cannot be preconditioned as requested")
MemoryMissing: Final = _kind("E213", EXIT_USAGE, "there is less memory than the plan or dbbench requires")
OpenFilesTooFew: Final = _kind("E214", EXIT_USAGE, "the limit of open files is too low")
NoAccountFree: Final = _kind("E220", EXIT_USAGE, "no user ID is free for the server")

# Filesystems, layers and operations
MkfsFailed: Final = _kind("E301", EXIT_TRIAL_FAILED, "mkfs failed")
MountFailed: Final = _kind("E302", EXIT_TRIAL_FAILED, "mount failed")
ClaimWrong: Final = _kind("E303", EXIT_TRIAL_FAILED, "the claimed durability class is wrong")
FilesystemGone: Final = _kind("E304", EXIT_TRIAL_FAILED, "filesystem error during the trial")
FilesystemFull: Final = _kind("E305", EXIT_TRIAL_FAILED, "the filesystem is full")
LoopFailed: Final = _kind("E306", EXIT_TRIAL_FAILED, "the loop device could not be set up")
UnmountFailed: Final = _kind("E307", EXIT_TRIAL_FAILED, "the filesystem could not be unmounted")
OptionNotInForce: Final = _kind("E308", EXIT_TRIAL_FAILED, "a file option has no effect on the restored files")
ZfsUnavailable: Final = _kind("E309", EXIT_TRIAL_FAILED, "no ZFS driver is available")
LayerFailed: Final = _kind("E310", EXIT_TRIAL_FAILED, "a RAID, LVM or encryption layer could not be created")
LayerStuck: Final = _kind("E311", EXIT_TRIAL_FAILED, "a RAID, LVM or encryption layer could not be removed")
SnapshotLost: Final = _kind("E312", EXIT_TRIAL_FAILED, "the held snapshot was lost during the trial")
OperationFailed: Final = _kind("E315", EXIT_TRIAL_FAILED, "an operation after the load failed")
FilesystemDamaged: Final = _kind("E316", EXIT_TRIAL_FAILED, "the filesystem check found errors")
CopyWrong: Final = _kind("E317", EXIT_TRIAL_FAILED, "a snapshot or clone has wrong contents")
WalElsewhere: Final = _kind("E318", EXIT_TRIAL_FAILED, "the write-ahead log is not where the plan puts it")

# Sources, recordings, standbys and clients on other hosts
SourceMissing: Final = _kind("E320", EXIT_USAGE, "the source is missing or its format is unknown")
SourceInUse: Final = _kind("E321", EXIT_REFUSED, "the source is in use")
SourceForeign: Final = _kind("E322", EXIT_USAGE, "the source does not match this server")
SourceIncomplete: Final = _kind("E323", EXIT_USAGE, "the source is incomplete")
SourceChanged: Final = _kind("E324", EXIT_USAGE, "the source has changed")
DataInconsistent: Final = _kind("E325", EXIT_TRIAL_FAILED, "the data is inconsistent after the load")
RecordingUnreadable: Final = _kind("E326", EXIT_USAGE, "the recording contains no usable statements")
LiveServerUnreadable: Final = _kind("E327", EXIT_USAGE, "the running server could not be read")
ClientUnreachable: Final = _kind("E328", EXIT_USAGE, "the client host cannot be reached")
ClientLacks: Final = _kind("E329", EXIT_USAGE, "the client host does not meet the requirements")
ApplyUnequal: Final = _kind("E330", EXIT_TRIAL_FAILED, "the standby differs from its primary")
ApplyStuck: Final = _kind("E331", EXIT_TRIAL_FAILED, "the standby stopped applying the log")
AddressUnusable: Final = _kind("E332", EXIT_USAGE, "the server address cannot be used")
PasswordUnusable: Final = _kind("E333", EXIT_USAGE, "the password file cannot be used")
ClientLost: Final = _kind("E334", EXIT_TRIAL_FAILED, "the connection to the client host was lost")
ScriptInvalid: Final = _kind("E335", EXIT_USAGE, "the SQL script is invalid")
SourceUnsafe: Final = _kind("E337", EXIT_REFUSED, "the source contains a link or a command that leads out of it")
StudyImpossible: Final = _kind("E340", EXIT_USAGE, "the study cannot be run on this machine")

# Processes of a trial, and whether the counted work was really done
ProgramNotStarted: Final = _kind("E345", EXIT_TRIAL_FAILED, "a program could not be started")
AnswerUnknown: Final = _kind("E346", EXIT_TRIAL_FAILED, "the output of a program could not be parsed")
ServerAnswered: Final = _kind("E347", EXIT_TRIAL_FAILED, "the server returned an error")
TrialDied: Final = _kind("E348", EXIT_TRIAL_FAILED, "the process of the trial died")
TrialStuck: Final = _kind("E349", EXIT_TRIAL_FAILED, "the trial exceeded its deadline and was killed")
HelperDied: Final = _kind("E350", EXIT_TRIAL_FAILED, "a helper thread of dbbench died")
WorkUnconfirmed: Final = _kind("E352", EXIT_TRIAL_FAILED, "the load generator's count is not confirmed")
FlushesTooFew: Final = _kind("E353", EXIT_TRIAL_FAILED, "too few device flushes for the commits")
LogTooSmall: Final = _kind("E354", EXIT_TRIAL_FAILED, "too little write-ahead log for the commits")
LoadElsewhere: Final = _kind("E355", EXIT_TRIAL_FAILED, "the load did not use the filesystem under test")

# The database server
EngineStartFailed: Final = _kind("E401", EXIT_TRIAL_FAILED, "the server did not start")
EngineDied: Final = _kind("E402", EXIT_TRIAL_FAILED, "the server died")
DataCorrupt: Final = _kind("E403", EXIT_TRIAL_FAILED, "the integrity check found corrupt data")
EngineStopFailed: Final = _kind("E404", EXIT_TRIAL_FAILED, "the server did not stop cleanly")
SettingRefused: Final = _kind("E405", EXIT_TRIAL_FAILED, "a server setting is not in effect")

# The dataset
DatasetBuildFailed: Final = _kind("E501", EXIT_TRIAL_FAILED, "the dataset could not be built")
RestoreFailed: Final = _kind("E502", EXIT_TRIAL_FAILED, "the dataset could not be restored")
RestoreUnequal: Final = _kind("E503", EXIT_TRIAL_FAILED, "the restored dataset differs from the golden copy")

# The load
DriverFailed: Final = _kind("E601", EXIT_TRIAL_FAILED, "the load generator failed")
ClientErrors: Final = _kind("E602", EXIT_TRIAL_FAILED, "clients aborted or reconnected")
LoadEndedEarly: Final = _kind("E603", EXIT_TRIAL_FAILED, "the load ended before the window did")
NoProgress: Final = _kind("E604", EXIT_TRIAL_FAILED, "no transaction completed in the window")
FlushesMissing: Final = _kind("E605", EXIT_TRIAL_FAILED, "the commits caused no device flush")


# Results and nights
class ResultDamaged(DbbenchError):
    """`run`: the folder of the run to which the file belongs, where that is known."""

    id, title = "E801", "a result is damaged"
    run: str = ""


RunMissing: Final = _kind("E802", EXIT_USAGE, "no such run")
RunLocked: Final = _kind("E803", EXIT_REFUSED, "the run is in use, or it differs from its plan")
ResultsUnwritable: Final = _kind("E804", EXIT_USAGE, "a file or directory cannot be written")
NightlyLocked: Final = _kind("E805", EXIT_REFUSED, "another nightly run of this plan is in progress")
NightMissing: Final = _kind("E806", EXIT_INCONCLUSIVE, "there is no recent nightly run")


class ResultNotRegular(ResultDamaged):
    """A symbolic link, a FIFO, a socket, a device or a directory in place of a file of the results folder."""

    id, title = "E807", "a file of the results folder is not a regular file"


class ResultTooLarge(ResultDamaged):
    """A file of the results folder, or what it unpacks to, is larger than dbbench ever writes."""

    id, title = "E808", "a file of the results folder is too large"


RunsUnlike: Final = _kind("E809", EXIT_USAGE, "the runs cannot be compared as one")


# The power-loss lab, import and fleet
LabUnavailable: Final = _kind("E820", EXIT_USAGE, "the power-loss lab is not available on this machine")
LabContradicts: Final = _kind("E821", EXIT_TRIAL_FAILED, "the power-loss lab contradicts a durability class")
LabBlind: Final = _kind("E822", EXIT_TRIAL_FAILED, "the power-loss lab cannot detect a loss")
LabInvalid: Final = _kind("E823", EXIT_TRIAL_FAILED, "too many cuts of the power-loss lab are invalid")
ImportRefused: Final = _kind("E830", EXIT_REFUSED, "the result cannot be imported")
FleetUnreachable: Final = _kind("E831", EXIT_USAGE, "the scheduler or hosts of the fleet cannot be reached")
FleetMissing: Final = _kind("E832", EXIT_USAGE, "dask.distributed is not installed")
FleetInsecure: Final = _kind("E833", EXIT_REFUSED, "a fleet requires TLS with certificates")
HostLost: Final = _kind("E834", EXIT_TRIAL_FAILED, "a host of the fleet did not run its blocks")
CoordinatorGone: Final = _kind("E835", EXIT_TRIAL_FAILED, "the coordinator of the fleet is gone")
BudgetUsedUp: Final = _kind("E836", EXIT_TRIAL_FAILED, "a host of the fleet has used up its budget")

# The program
CommandFailed: Final = _kind("E900", EXIT_TRIAL_FAILED, "a program failed")
DeadlinePassed: Final = _kind("E901", EXIT_TRIAL_FAILED, "a phase or program exceeded its deadline")
Interrupted: Final = _kind("E902", EXIT_INTERRUPTED, "interrupted")
Terminated: Final = _kind("E903", EXIT_TERMINATED, "terminated")


def client_error(error: BaseException) -> bool:
    """Return whether a database client library raised the error: the server answered with it, or did not answer."""
    # By name: importing the libraries costs 100 ms.
    return type(error).__module__.partition(".")[0] in ("psycopg2", "mysql")


def all_errors() -> dict[str, type[DbbenchError]]:
    """Return the classes of all errors by ID, in order."""
    errors: dict[str, type[DbbenchError]] = {DbbenchError.id: DbbenchError}
    kinds = list(DbbenchError.__subclasses__())
    while kinds:
        kind = kinds.pop()
        errors[kind.id] = kind
        kinds += kind.__subclasses__()
    return dict(sorted(errors.items()))
