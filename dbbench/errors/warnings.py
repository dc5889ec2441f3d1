"""Every warning: a remark about a trial that does not end it. Sorted by ID.

The explanation says why it matters, with a published case where there is one. Trials with a warning that has `suspect`
were disturbed, so their blocks are repeated. The file is long because it is one table.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class WarningKind(NamedTuple):
    """One row of the table."""

    title: str
    explanation: str
    remedy: str
    suspect: bool = False


WARNINGS: Final[dict[str, WarningKind]] = {
    "W001": WarningKind(
        "the window is short",
        "A window of less than 60 s contains hardly a whole checkpoint cycle and few of the periodic commits of "
        "filesystems (every 30 s for btrfs), so chance decides what is measured. The manual of pgbench warns: "
        '"never believe any test that runs for only a few seconds".',
        "Set `measure` to 120 s or more. Use these numbers as a smoke test only.",
    ),
    "W002": WarningKind(
        "no checkpoint in the window",
        "Before the first checkpoint a database writes little more than its log, so the throughput does not include "
        "the writes to the data files. After a checkpoint it falls, because PostgreSQL then logs whole pages "
        "(`full_page_writes`) and InnoDB flushes dirty pages.",
        "Increase `measure`. dbbench sets the server to two checkpoints in a window.",
    ),
    "W003": WarningKind(
        "the drain took more than 10 % of the window",
        "Many dirty pages were still unwritten at the end of the window, so part of the throughput is writes that were "
        'only postponed. The stalls that such a backlog causes on Linux are described in LWN, "Toward less-annoying '
        'background writeback" (2016).',
        "Compare the sustained throughput, which includes the drain.",
    ),
    "W004": WarningKind(
        "the window is too short to detect a trend",
        "The test for a trend needs a window of 60 s or more. Without it, throughput may still rise or fall at the end "
        "of the window.",
        "Increase `measure`.",
    ),
    "W005": WarningKind(
        "throughput is not steady",
        "Throughput had a significant trend (p < 0.01) of more than 3 % over the window, so its mean depends on when "
        'and how long one measures. Barrett and others ("Virtual Machine Warmup Blows Hot and Cold", 2017) found many '
        "benchmarks that never become steady, and whose means are misleading.",
        "Look at the timeline, and increase `warmup`.",
    ),
    "W010": WarningKind(
        "the cache may not have been cold",
        "dbbench could not verify that the page cache was empty before the load, so some reads may have come from "
        "memory. Setups that start with different caches differ for a reason that is not the filesystem.",
        "In a container, run dbbench on the host instead.",
        True,
    ),
    "W011": WarningKind(
        "the loop device has no direct I/O",
        "The page cache of the host is between the filesystem and the disk and holds the data a second time. Reads "
        "may come from it, and writes that are not flushed stay in it, so both are faster than on the disk itself.",
        "Put the image on ext4, xfs or btrfs with `at` in `[device]`.",
    ),
    "W012": WarningKind(
        "background load",
        "Other processes used 5 % of the CPUs or half a CPU during the window. This CPU time is missing in this trial "
        "and not in the others, so the difference is not caused by the filesystem.",
        "Stop these processes. The warning names the busiest one.",
        True,
    ),
    "W013": WarningKind(
        "a sampler ended early",
        "sar, iostat or the reader of the server's counters stopped during the load or read nothing, so part of the "
        "telemetry is missing. A disturbance in that time would go unnoticed and count as an effect of the filesystem.",
        "Find out what ended the sampler, for example a shortage of memory in `dmesg`.",
        True,
    ),
    "W014": WarningKind(
        "telemetry has gaps",
        "Some seconds of the window have no sample, and charts show them as gaps. Samplers usually miss seconds when "
        "the CPUs are fully used, so the busiest seconds may be the missing ones.",
        "Leave CPUs free for the samplers with `cpus_server` and `cpus_client`.",
    ),
    "W015": WarningKind(
        "CPU time was stolen by the hypervisor",
        "Another virtual machine used 2 % or more of the CPU time of this one during the window. Schad and others "
        '("Runtime Measurements in the Cloud", 2010) found that such interference alone makes repeated measurements '
        "on EC2 differ widely.",
        "Use a host with dedicated CPUs.",
        True,
    ),
    "W016": WarningKind(
        "the load generator is the bottleneck",
        "The load generator used more than 80 % of the CPUs that its threads can use. It limits the throughput, so a "
        "faster filesystem cannot be distinguished from a slower one.",
        "Increase `threads` or `cpus_client`, or run the load generator on another host.",
        True,
    ),
    "W017": WarningKind(
        "the image lost blocks",
        "Blocks of the loop image were discarded during the trial. Writes to them must allocate space again, which "
        "writes of other trials do not.",
        "Look for `discard` in the fs setup. With online discard this is expected and does not make the trial suspect.",
        True,
    ),
    "W018": WarningKind(
        "host settings changed during the run",
        "The CPU governor, read-ahead, the I/O scheduler or a similar setting differs from the first trial of the run. "
        'Mytkowicz and others ("Producing Wrong Data Without Doing Anything Obviously Wrong!", 2009) showed that much '
        "smaller differences in the environment can reverse a result.",
        "Stop what changes the settings, for example tuned or a power daemon.",
        True,
    ),
    "W019": WarningKind(
        "transactions failed",
        "Some transactions ended with an error, such as a deadlock or a serialization failure, and were retried or "
        "counted as errors. They use CPU and I/O but do not count as throughput, so a setup with more of them looks "
        "slower than its filesystem is.",
        "Compare the numbers of errors of the setups.",
    ),
    "W020": WarningKind(
        "the kernel logged device errors",
        "The kernel reported errors of a device of this trial, so its data may be damaged. In 2018 PostgreSQL "
        "developers found that Linux reports a failed write to fsync only once: a retry succeeded although the data "
        'was lost ("fsyncgate").',
        "Read `dmesg` and check the disk.",
        True,
    ),
    "W021": WarningKind(
        "the device is small",
        "Below 64 GiB mkfs chooses fewer allocation groups and a smaller journal than on the disk of a server. "
        "Contention in the allocator and in the journal is therefore different there.",
        "Use a device of 64 GiB or more for a decision.",
    ),
    "W022": WarningKind(
        "durability classes differ",
        "The compared setups do not preserve the same data after a power loss, and the faster one may be faster for "
        "that reason. ext3 was long mounted without write barriers by default because they cost throughput (LWN, "
        '"Barriers and journaling filesystems", 2008).',
        "Compare setups of the same durability class.",
    ),
    "W023": WarningKind(
        "the system clock was set",
        "The clock changed by more than 0.5 s during the trial, so timestamps in logs are shifted; durations are "
        "measured with the monotonic clock and stay correct. Software that trusts the system clock may fail: part of "
        "Cloudflare's DNS did at the leap second of 2017.",
        "Let the time service slew the clock instead of stepping it.",
        True,
    ),
    "W024": WarningKind(
        "device flushes cannot be counted",
        "No device below this filesystem counts flush requests, so dbbench cannot verify that commits reach the disk. "
        "Drives that acknowledge a flush early are known since Brad Fitzpatrick's diskchecker.pl (2005).",
        "Use a device whose driver counts flushes, or test it with `dbbench powercut`.",
    ),
    "W025": WarningKind(
        "the server logged errors",
        "The server log has lines of level ERROR or worse from the time of the load, so part of the load may have "
        "failed instead of being measured. The warning quotes the first line, and the timeline marks its second.",
        "Read raw/server.log of the trial.",
    ),
    "W027": WarningKind(
        "the ARC is shared with other pools",
        "The kernel has other pools imported, and all pools share one ARC. Data of the other pools may push that of "
        "the trial out of it, and its size and hit rate are not those of this filesystem alone.",
        "Export the other pools while measuring.",
    ),
    "W028": WarningKind(
        "lazy initialization is on",
        "The kernel writes the inode tables of the new filesystem in the background during the load, which takes "
        "throughput from this setup alone. The catalogue's setups disable this, so that mkfs writes the tables before "
        "the trial.",
        "Remove `lazy_itable_init=1` from the fs setup.",
    ),
    "W030": WarningKind(
        "an operation after the load failed",
        "An operation of the plan was started after the load and did not complete, and the operations after it were "
        "not tried, so they cannot be compared with those of other setups. The results of the load are not affected.",
        "Correct the cause that the warning names.",
    ),
    "W038": WarningKind(
        "the kernel does not limit the memory",
        "The caches of the server fit the `memory` of the plan, but the page cache may grow beyond it, so reads that "
        "should come from the disk may come from memory. Traeger and others surveyed 106 papers "
        '("A Nine Year Study of File System and Storage Benchmarking", 2008) and found that many of them do not show '
        "the true performance.",
        "Run as root on a system with cgroup v2 or the memory controller of v1.",
    ),
    "W039": WarningKind(
        "server and load generator share CPUs",
        "CPU time that the load generator uses is missing for the server. A faster filesystem makes the load generator "
        "busier and so appears slower than it is; TPC-C requires a driver outside the system under test.",
        "Give `cpus_server` and `cpus_client` different CPUs.",
    ),
    "W040": WarningKind(
        "device performance changed during the block",
        "The short write probe before this trial is more than 10 % off the median of its block, so the device itself "
        "changed, for example through garbage collection or heat. The SNIA performance test specification therefore "
        "requires an SSD to be purged and written to a steady state before it is measured.",
        "Let the device rest between trials, or set `condition` in `[device]`.",
        True,
    ),
    "W041": WarningKind(
        "the warm-up is shorter than three commit intervals",
        "Filesystems write data back at intervals of their own: 30 s for btrfs, 5 s for ext4 and ZFS, or `commit=`. "
        "After a short warm-up the first of these writes is in the window of one filesystem and not of another.",
        "Increase `warmup`, for all setups alike.",
    ),
    "W042": WarningKind(
        "the trial is limited by the device",
        "IOPS or MB/s stayed at the limit that fio measured on the bare device, and no trial of the run exceeded it. "
        "If this is true of the baseline and of a setup, the two cannot be compared. Cloud volumes have such limits "
        "and credits that run out: gp2 volumes of Amazon fall from 3000 IOPS to their baseline when the credits are "
        "used up.",
        "Use a faster volume, or one without such a limit.",
    ),
    "W043": WarningKind(
        "direct I/O used the page cache",
        "InnoDB requested direct I/O, and the filesystem served it through the page cache, as btrfs does for "
        "compressed files and, in newer kernels, for files with checksums. This setup has a second cache that the "
        "others do not have, so its reads may come from memory.",
        "Limit the memory of all setups with `memory` in the plan.",
    ),
    "W099": WarningKind(
        "rehearsed in a second kernel",
        "User-mode Linux has one CPU and is several times slower than the machine. The trial shows that the setup "
        "works; its numbers say nothing about a server.",
        "Ignore the numbers. docs/rehearsal.md describes the second kernel.",
    ),
    "W100": WarningKind(
        "the dataset was restored by reflink",
        "The data files share their blocks with a copy, as after a snapshot or a clone. The first write to each block "
        "goes to another place, which costs time and fragments the file.",
        'Compare only setups with the same `restore`, or set `restore = "copy"`.',
    ),
    "W101": WarningKind(
        "settings of the source are not used",
        "Settings in the files of the source's server, or from ALTER SYSTEM and ALTER DATABASE, are left out so that "
        "setups differ only in their filesystem. The server may behave differently from the original one.",
        "Add the settings that the data requires to `settings` of `[[engine]]`.",
    ),
    "W102": WarningKind(
        "only one tablespace is on the filesystem",
        "The rest of the cluster and its write-ahead log are on another disk, and commits are flushed there. The "
        "durability class is that of the filesystem under test alone.",
        "Read the results as those of table access, not of commits.",
    ),
    "W103": WarningKind(
        "the clocks of client and server drifted apart",
        "Seconds of the load generator are converted with the offset between both clocks before the load, and that "
        "offset changed or is not known to 0.1 s. Totals are correct, but the series may be shifted.",
        "Synchronize both clocks with a time server.",
        True,
    ),
    "W104": WarningKind(
        "the client host has another version of the load generator",
        "pgbench or sysbench has another release on the client host than on this one. The CPU time that the load "
        "generator needs for a transaction is part of its latency and differs between releases.",
        "Install the same release, and compare only trials with the same one.",
    ),
    "W105": WarningKind(
        "the client host was busy",
        "Other processes used 10 % or more of the CPUs of the client host during the window. The load generator may "
        "have waited for a CPU, which counts as latency.",
        "Stop these processes, or use another host.",
        True,
    ),
    "W106": WarningKind(
        "the device did not respond",
        "For 5 s or more of the window the disk completed no request although one was waiting. Such a stall is caused "
        "by the device and not by the filesystem, and the kernel logs it only after the driver's timeout (30 s for "
        "most disks).",
        "Check SMART, the cable, the controller and the storage of the hypervisor.",
        True,
    ),
    "W108": WarningKind(
        "no snapshots during the load",
        "The plan has `[snapshots]`, but this fs setup cannot take a snapshot while the server runs. The load ran "
        "without them, so its results are not comparable with those of setups with snapshots.",
        "Compare only setups that took snapshots.",
    ),
    "W109": WarningKind(
        "a snapshot during the load failed",
        "A snapshot did not complete, or the server on its clone did not respond, and no further ones were taken. The "
        "rest of the window has another load than the plan requests.",
        "Correct the cause that the warning names.",
    ),
    "W110": WarningKind(
        "fewer snapshots than requested",
        "To take a snapshot, start a server on it and remove the oldest one took longer than `every`. Setups with "
        "different numbers of snapshots have different loads.",
        "Increase `every`, and compare setups with the same number of snapshots.",
    ),
    "W111": WarningKind(
        "the apply rate decreased",
        "The rate at which the standby applied the log has a significant downward trend of more than 5 %. A longer log "
        "would be applied more slowly than this one, so the mean is too favourable for a standby that runs for days.",
        "Set `log_bytes` to the amount of log that you expect in operation.",
    ),
    "W112": WarningKind(
        "the additional statement ended after the window",
        "The `during` statement of the workload took longer than the rest of the window. Its effect on the other "
        "transactions is measured only until the end of the window.",
        "Increase `measure`, or reduce `large_bytes`.",
    ),
    "W113": WarningKind(
        "the tables were not aged",
        "The load wrote less than 64 KiB per window, so the write factors of `[age_engine]` cannot be reached. The "
        "results are those of fresh tables, which are read faster than tables of a server in use.",
        "Use a workload that writes.",
    ),
    "W116": WarningKind(
        "the file is too small for this memory",
        "bonnie++ reads part of a file of less than twice the memory from the page cache, and its manual asks for "
        "twice the memory. A copied file that fits into memory is written there first, so its rate without fsync is "
        "the speed of memory.",
        "Increase `file_size`, or set `memory` in the plan.",
    ),
    "W117": WarningKind(
        "the files may not have been read from disk",
        "The page cache could not be emptied between writing and reading, or the filesystem has a cache of its own. "
        "The read rate is partly or completely that of memory.",
        "Run as root; with ZFS, read the rate as that of a warm cache.",
    ),
    "W118": WarningKind(
        "the scan also wrote",
        "A scan should only read, but the first one after rows were inserted sets their hint bits and writes the "
        'changed pages (PostgreSQL wiki, "Hint Bits"), with data checksums to the log too. Part of the ratio is then '
        "the cost of writing, which can reverse the order of the filesystems.",
        "Remove `settle = false`, or vacuum and freeze the tables.",
    ),
    "W119": WarningKind(
        "several devices are on one physical disk",
        "The devices of this setup are files or partitions of the same disk. RAID over them divides one disk's time "
        "and gains nothing, and a log on one of them still competes with the data.",
        "Give each device a disk of its own.",
    ),
    "W124": WarningKind(
        "kernel messages were lost",
        "The buffer of the kernel log overflowed during the trial. A device error may be among the lost lines, so "
        "dbbench cannot rule out that the disk was at fault.",
        "Find out with `dmesg` what fills the log.",
        True,
    ),
    "W125": WarningKind(
        "the kernel reported serious trouble",
        "The kernel ran out of memory, detected a hung CPU or reported faulty hardware, which can affect any result. "
        'Hardware errors are not rare: Schroeder and others ("DRAM Errors in the Wild", 2009) found memory errors in '
        "more than 8 % of modules per year.",
        "Read `dmesg`; the warning quotes the line.",
        True,
    ),
    "W126": WarningKind(
        "thermal throttling",
        "The CPUs reduced their frequency because of heat, so later trials run slower than earlier ones. In 2018 Apple "
        "had to correct the firmware of laptops that throttled below their base frequency.",
        "Improve the cooling, or set a lower fixed frequency.",
        True,
    ),
    "W127": WarningKind(
        "I/O of other processes",
        "A quarter or more of the bytes on the filesystem under test, or on the disk below its image, and at least "
        "8 MB/s, did not belong to this trial: they used time of the disk that other trials had for themselves. With "
        "such I/O on the filesystem itself, the trial has no `write_amplification`. Or a program wrote to the device "
        "node of a disk, or into the image, and may have damaged the filesystem.",
        "Find the process with `iotop` and stop it, or use a separate disk.",
        True,
    ),
    "W128": WarningKind(
        "server settings changed during the load",
        "A setting of the plan, or one that controls flushes and commits, had another value after the load, or the "
        "server read its configuration again. The results belong to two configurations.",
        "Find out who changed the settings.",
        True,
    ),
    "W129": WarningKind(
        "processes of the trial were stopped",
        "The server, the load generator or a sampler was stopped (SIGSTOP) or frozen (a control group), or the whole "
        "machine was paused, as a virtual machine is during a migration. The drop in throughput is not caused by the "
        "filesystem.",
        "Look for a debugger, cpulimit, `docker pause`, and for snapshots or migrations of the virtual machine.",
        True,
    ),
    "W130": WarningKind(
        "the page cache was dropped by another process",
        "Another process wrote to /proc/sys/vm/drop_caches during the load. Data that was cached had to be read from "
        "the disk again, which slowed down this trial and not the others.",
        "Look for a cron job or monitoring script that writes to drop_caches.",
        True,
    ),
    "W131": WarningKind(
        "memory was swapped",
        "1 MB/s or more went to or came from swap during the window, so the disk with the swap area was measured too. "
        "Servers may swap with memory to spare: see Jeremy Cole, \"The MySQL 'swap insanity' problem and the effects "
        'of the NUMA architecture" (2010).',
        "Give the server less `memory`, stop other processes, or disable swap with `swapoff -a`.",
        True,
    ),
    "W132": WarningKind(
        "mount options changed during the load",
        "The filesystem was remounted with other options, or something was mounted over it. The results belong to two "
        "setups, and with barriers turned off to two durability classes.",
        "Find out who remounts filesystems.",
        True,
    ),
    "W133": WarningKind(
        "scheduling of the trial's processes changed",
        "Another process changed the nice value, scheduling policy, CPU affinity or I/O priority of the server, the "
        "load generator or a sampler. The trial had other resources than the trials that it is compared with.",
        "Look for renice, taskset, ionice, and daemons that set priorities such as ananicy.",
        True,
    ),
    "W134": WarningKind(
        "control groups of the trial changed",
        "A limit of a control group of the trial's processes changed, or a process was moved to another group. CPU "
        'limits alone can cause long latencies: see Indeed Engineering, "Unthrottled: Fixing CPU Limits in the '
        'Cloud" (2019).',
        "Find out who manages the groups, for example systemd or a container engine.",
        True,
    ),
    "W135": WarningKind(
        "another session in the server",
        "A client that belongs neither to dbbench nor to the load generator connected to the trial's private server. "
        "Its statements, for example a lock or a VACUUM, became part of the load.",
        "Find out who connects. The warning quotes the program and its statement if they were still visible.",
        True,
    ),
    "W136": WarningKind(
        "the device was slower than before the run",
        "For 3 s or more the device was busy the whole time and yet delivered less than half of its slowest "
        "measurement before the run. The cause is other load on the disk, a limit, exhausted credits or heat, and not "
        "the filesystem.",
        "Look for these causes. `ceiling` in trial.json has the measurements.",
        True,
    ),
    "W140": WarningKind(
        "telemetry has an unexpected format",
        "sar or iostat ran to its end, but its output lacks samples or columns that dbbench reads, so part of the "
        "telemetry is missing. Another version of sysstat may print another format.",
        "Report the text of the warning with the version of sysstat. The files are in `raw/`.",
        True,
    ),
    "W141": WarningKind(
        "a tool's result could not be read",
        "e2freefrag, xfs_spaceman, btrfs, zfs or compsize was missing, failed or printed an unknown format after the "
        "load. The values that come from it (space, compression, fragmentation) are missing in this trial.",
        "Install the tool, or report the text of the warning with the tool's version.",
        True,
    ),
    "W146": WarningKind(
        "the server lacks counters of its version",
        "A column of a PostgreSQL view, or a status variable of MariaDB or MySQL, is missing. Values that are computed "
        "from it, such as bytes written or the hit ratio, are empty.",
        "Use an unmodified server, or a version of dbbench that supports it.",
        True,
    ),
    "W147": WarningKind(
        "the server is newer than dbbench",
        "dbbench was not tested with this release of the server, and reads the counters by their names in an older "
        "release. Their meaning may have changed, and the checks that rely on them would then be wrong.",
        "Compare the counters with the release notes of the server, or use a newer dbbench.",
    ),
    "W148": WarningKind(
        "the server does not have a default setting",
        "dbbench sets this setting for every server of this release, but this server does not have it. It may write or "
        "flush differently from the servers that it is compared with.",
        'Remove the default for all servers with `settings = { NAME = "default" }`.',
    ),
    "W150": WarningKind(
        "the load generator's count could not be verified",
        "The server or the kernel does not count the same work here. Only the load generator itself reports how much "
        "work was done, and an error in its count would be an error of the throughput.",
        "Use a server and a kernel that count it, for example with `track_counts = on`.",
    ),
    "W151": WarningKind(
        "few flushes or little log for the commits",
        "Commits of temporary or unlogged tables need neither flushes nor log; commits of other tables would not "
        'survive a power loss. Zheng and others ("Understanding the Robustness of SSDs under Power Fault", 2013) '
        "tested 15 SSDs, of which 13 failed, for example by corrupting data.",
        "If the tables are permanent, look for what discards fsync.",
        True,
    ),
    "W152": WarningKind(
        "data that grew was not compressed",
        "The filesystem compresses, and the restored files are compressed, but the new ends of files that grew during "
        "the load are not. PostgreSQL 16 and later, MariaDB and MySQL allocate space before they write it (fallocate), "
        "and btrfs does not compress what is written into allocated space.",
        "Compare with a setup that uses `file_extend_method = write_zeros`, if the server has this setting; MariaDB "
        "and MySQL have none. `growth` in trial.json has the shares.",
    ),
    "W153": WarningKind(
        "the required rate of inserts was missed",
        "The workload inserts rows at a fixed rate next to its queries, and less than 95 % of it was achieved in the "
        "window. With fewer inserts the server has less work to do, so more queries per second would be no advantage. "
        "This step has failed: `queries_per_s` has no value, and the results of the other steps remain valid.",
        "Choose an `insert_rate` that every cell sustains, or increase `writers` or `batch`.",
    ),
    "W156": WarningKind(
        "the page cache of the whole machine was dropped",
        "The data files were still in memory after their filesystem was mounted again, or after they were evicted, so "
        "dbbench wrote to /proc/sys/vm/drop_caches. Other programs on this machine had to read their files from the "
        "disk again; the trial itself is valid.",
        "Look for a process that maps the data files. Do not run this plan next to a server that must stay fast.",
    ),
}
