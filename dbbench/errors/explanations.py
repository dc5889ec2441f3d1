"""What each error means and what to do about it, sorted by ID. IDs, exit statuses and titles are in `__init__.py`.

The file is long because it is one table.
"""

from __future__ import annotations

from typing import Final

# ID: (meaning, remedy)
EXPLANATIONS: Final[dict[str, tuple[str, str]]] = {
    "E001": (
        "A plan, fs setup or workload file is not valid TOML, or has unknown keys or invalid values. All faults are "
        "listed at once, each with its file and line.",
        "Correct the listed lines, then check the file with `dbbench plan FILE`.",
    ),
    "E002": (
        "No fs setup, workload, study, metric, trial or ID has this name.",
        "Use the suggested name, or list the names with `dbbench fs`, `dbbench workload` or `dbbench show RUN`.",
    ),
    "E003": (
        "The plan, a directory given with `--path`, a script or a certificate does not exist or cannot be read, or the "
        "current directory was deleted.",
        "Correct the path or the permissions.",
    ),
    "E004": (
        "The name has characters that a directory name cannot have, or a run with this name exists that was made "
        "from another plan, on another machine or by another version of dbbench.",
        "Choose another name with `--name`, or rename the folder of the old run.",
    ),
    "E005": (
        "dbbench does not overwrite plans, certificates or images that it did not make during this run.",
        "Move the file away or choose another name, for example `dbbench init -o other.toml`.",
    ),
    "E006": (
        "A plan, fs setup, workload, script or recording is a FIFO, a socket, a device or a directory. It was not "
        "opened, because reading it might never end.",
        "Name a regular file. Redirect the output of a program to a file first.",
    ),
    "E007": (
        "The limit is 256 KiB for a plan, fs setup or workload, 16 MiB for a script or an export of statements, and "
        "256 MiB for a slow query log.",
        "Shorten the file. For a slow query log, use a part of it: `head -c 200M`.",
    ),
    "E101": (
        "The device does not exist, is not a block device, cannot be read, does not match `identity` in the plan, or "
        "is listed twice.",
        "List the devices with `dbbench doctor` and correct `[device]` in the plan.",
    ),
    "E104": (
        "The device, a partition of it or a device below it is mounted, used as swap, listed in /etc/fstab, part of "
        "RAID, LVM or a loop device, or open in another process. No option overrides this check.",
        "Unmount or release the device, or choose another one.",
    ),
    "E106": (
        "The device has a filesystem, a partition table, a RAID or LVM signature, or other data.",
        "If everything on it may be erased, run the command again with `--wipe` and the identity that the message "
        "prints.",
    ),
    "E107": (
        "Another run, or a program that partitions disks, holds a lock (flock) on the device. The message names the "
        "process where it is visible.",
        "Wait for that process or stop it. `lslocks` and `fuser -v DEVICE` show the holders.",
    ),
    "E108": (
        "The directory does not exist, is not empty, belongs to the operating system, or is on a filesystem whose "
        "durability dbbench does not know.",
        "Create an empty directory on ext3, ext4, xfs or btrfs and name it in `[device]`.",
    ),
    "E109": (
        "Between mkfs, mount and unmount of a trial, another process wrote a filesystem, a swap area or a label to "
        "the device. dbbench leaves that data as it is.",
        "Find the other process, starting with `lsblk -f DEVICE`, and use the device for one purpose only.",
    ),
    "E201": (
        "The trial needs a server, load generator, filesystem tool or recorder that is missing or too old.",
        "Run the command in the message. `dbbench doctor` lists everything that is missing.",
    ),
    "E202": (
        "Only root can create loop devices, format block devices and mount filesystems.",
        'Use `sudo`, or measure existing directories with `kind = "dir"` in `[device]`.',
    ),
    "E203": (
        "The image, the golden copies, the results, or the dataset with the server's logs do not fit.",
        "Free space, make the dataset smaller, or use another disk: `at` in `[device]`, `--results`, `DBBENCH_CACHE` "
        "or `DBBENCH_CACHE_LIMIT`.",
    ),
    "E204": (
        "Each trial runs in mount, PID and IPC namespaces of its own, which this user or container may not create.",
        'Run dbbench as root on the host or in a privileged container, or use `kind = "dir"`.',
    ),
    "E205": (
        "Installing the packages would remove or upgrade an installed package, such as a database server. Nothing was "
        "installed.",
        "Resolve the conflict with apt first, as the message describes.",
    ),
    "E206": (
        "The kernel lacks the filesystem, an option of it, or an interface that dbbench reads it through, or it "
        "refuses io_uring, which a setting of the server requires.",
        "Leave the fs setup or the setting out of the plan, or use another kernel. `dbbench fs` lists what works here.",
    ),
    "E207": (
        "`dbbench rehearse` requires Linux on x86-64 and packages of Debian.",
        "Rehearse on another machine, or run the plan on a machine whose kernel supports the fs setup.",
    ),
    "E208": (
        "A step of the build failed, and the message names it. Nothing was kept.",
        "Read the last lines of the message. The packages come from Debian unstable: try again in a few days.",
    ),
    "E209": (
        "The second kernel stopped before its command ended. Its last lines are in the message.",
        "Run the command again. If it fails again, report it with these lines.",
    ),
    "E210": (
        "The kernel killed a process of the server because the server needed more memory than the plan allows.",
        "Increase `memory`, reduce the server's caches, or use fewer clients.",
    ),
    "E211": (
        "`cpus_server`, `cpus_client` or `numa_node` names CPUs that do not exist or that dbbench may not use.",
        "Compare the plan with the output of `lscpu` and correct it.",
    ),
    "E212": (
        "The device does not support discard, or fio is not installed.",
        "Choose another `condition` in `[device]`, or install fio.",
    ),
    "E213": (
        "`memory` is larger than the memory of this machine, or a server's own cache (`shared_buffers`, "
        "`innodb_buffer_pool_size`) is larger than `memory` or the machine's. The server would swap or be killed, and "
        "a dataset that is sized by `memory` would not be as large as its name says. Or `ulimit` leaves dbbench too "
        "little address space or stack.",
        "Reduce `memory` or the cache in the plan, use a larger machine, or raise the limit.",
    ),
    "E214": (
        "MariaDB and MySQL need two files for each table of `table_open_cache` and one for each connection of "
        "`max_connections`, and a load generator one for each client. dbbench raises the soft limit up to the hard "
        "limit (`ulimit -Hn`), which only root and the manager of a service or container can raise. With a lower limit "
        "the server would reduce these settings.",
        "Raise the hard limit: `ulimit -Hn` in the shell, `LimitNOFILE=` of a systemd unit, `--ulimit nofile=` of a "
        "container. Or set smaller values in `settings` of `[[engine]]`.",
    ),
    "E220": (
        "Each server runs under a user ID between 60578 and 61183 that nothing else uses. All of them are in use, or "
        "this container does not map them.",
        "Map these user IDs into the container; /proc/self/uid_map shows the mapping.",
    ),
    "E301": (
        "mkfs ended with an error. Its output is in the message, and the device holds no usable filesystem.",
        "Print the command with `dbbench fs NAME` and try it by hand.",
    ),
    "E302": (
        "The kernel rejected a mount option, or mounted something other than was requested.",
        "Read the kernel's message in the error or in `dmesg`, and correct the options of the fs setup.",
    ),
    "E303": (
        "`claims` in the fs setup does not agree with the durability of the options that the kernel reports.",
        "Correct `claims` or the options in the file of the fs setup.",
    ),
    "E304": (
        "The filesystem became read-only, shut down, failed an fsync, or had other mount options after the load than "
        "before it.",
        "Read `dmesg` and check the disk.",
    ),
    "E305": (
        "The dataset, the log and the metadata do not fit, or a copy-on-write filesystem still keeps old blocks. A "
        "server that waits for free space is killed, because MariaDB would wait forever. The message names the full "
        "filesystem, which may also be that of the results, of the cache or of standard output.",
        "Use a larger device, a smaller dataset or a smaller log, or free space.",
    ),
    "E306": (
        "No loop device is free, or the kernel did not allow direct I/O on the image.",
        "Read `losetup -l` and `dmesg`, or put the image on another filesystem with `at` in `[device]`.",
    ),
    "E307": (
        "A process still uses the filesystem. The message names it where it is visible.",
        "End that process, unmount the filesystem, then run `dbbench clean`.",
    ),
    "E308": (
        "`nodatacow`, `chattr +C` or compression is missing on the restored data files, so the trial would measure "
        "another setup.",
        "Correct the fs setup. Data that does not shrink is stored uncompressed.",
    ),
    "E309": (
        "The kernel has no OpenZFS module, or it did not accept the limit of its cache.",
        "Install OpenZFS for this kernel.",
    ),
    "E310": (
        "mdadm, LVM or cryptsetup failed, or created something other than was requested.",
        "Print the commands with `dbbench fs NAME`, and read the tool's output and `dmesg`.",
    ),
    "E311": (
        "A filesystem on the layer is still mounted, or a process has the layer open.",
        "Unmount the filesystem, then run `dbbench clean`.",
    ),
    "E312": (
        "The load changed more data than the snapshot has space for, so part of the trial ran without the snapshot.",
        "Increase `snapshot_size`, or use a larger device.",
    ),
    "E315": (
        "An operation that follows the load did not complete. The trial keeps the results of the load, with warning "
        "W030.",
        "Read the text of the warning.",
    ),
    "E316": (
        "e2fsck, xfs_repair, `btrfs check` or a scrub found errors on the filesystem after the load, so its results "
        "are not trustworthy.",
        "Read the tool's output and `dmesg`. Check the disk, or report a bug of the filesystem.",
    ),
    "E317": (
        "A snapshot, clone, rollback or crash recovery lacks rows that were acknowledged before it, or has rows that "
        "were written after it.",
        "Repeat the trial. If the error persists, report a bug of the filesystem, the layer or dbbench.",
    ),
    "E318": (
        "With `[device.wal]`, or a setup with a volume for the log, a log file of the running server is in another "
        "place.",
        "Remove settings for the location of the log from the plan.",
    ),
    "E320": (
        "`source` of a workload does not exist, or is not a dump or copy of a format that dbbench can load.",
        "Correct the path. docs/workloads.md lists the formats.",
    ),
    "E321": (
        "A server uses this data directory or did not shut down cleanly. A copy of it would be inconsistent.",
        "Take a backup with pg_basebackup, mariabackup or xtrabackup, or stop the server.",
    ),
    "E322": (
        "The source was made by another database, another major version, or with another page size.",
        "Name the programs of its version as `bin`, or use a dump instead of a physical copy.",
    ),
    "E323": (
        "A dump ends too early, a tablespace, the log of a backup, a table or a database is missing, or the "
        "source is packed or incremental.",
        "Complete the source as the message describes.",
    ),
    "E324": (
        "Files, sizes or times of the source differ from those at the time of planning, and no golden copy had been "
        "built from the earlier state.",
        "Start a new run with `dbbench run --new`.",
    ),
    "E325": (
        "A consistency condition of the dataset (TPC-C 1 to 12) does not hold after the load and a server restart. A "
        "transaction was lost or applied in part, or another session wrote.",
        "Repeat the trial. If the error persists, the filesystem, the server or the script loses acknowledged data.",
    ),
    "E326": (
        "The file is neither an export of pg_stat_statements nor a slow query log, or none of its statements can be "
        "run again.",
        "Record the statements with the commands that the message prints.",
    ),
    "E327": (
        "No server answers on the socket, or the role may not connect or read the settings.",
        "Name the socket and the role with `--socket`, `--user` and `--database`.",
    ),
    "E328": (
        "ssh to `host` of `[client]` fails or asks for a password or confirmation.",
        "Make `ssh -o BatchMode=yes HOST true` work for the user who runs dbbench.",
    ),
    "E329": (
        "python3, setpriv, pgbench or sysbench 1.0 is missing on the client host, or its clock is more than 5 s "
        "behind.",
        "Install the programs there, and synchronize both clocks with a time server.",
    ),
    "E330": (
        "After the whole log was applied, the checksum of a table differs from that on the primary.",
        "Read raw/checksums.json of the trial, which has the checksums of both servers.",
    ),
    "E331": (
        "The standby received log but applied none of it for 300 s.",
        "Read the server log in `raw/`, which says what the standby waits for.",
    ),
    "E332": (
        "`address` is not an address of this machine, `port` is in use, or the client host cannot connect to it.",
        "Choose another `address` or `port`, and open the port in the firewall.",
    ),
    "E333": (
        "The password file does not exist, is readable by other users, or does not hold a line of 8 to 100 letters, "
        "digits or signs.",
        "Create a password with `openssl rand -hex 16`, and protect the file with `chmod 600`.",
    ),
    "E334": (
        "ssh ended or stopped answering during a trial.",
        "Check the network between the two hosts. raw/client_ssh.err has the output of ssh.",
    ),
    "E335": (
        "The script of a workload with the driver `statements` has an unknown word, engine or parameter, or no timed "
        "step.",
        "Correct the line that the message names. docs/workloads.md describes the format.",
    ),
    "E337": (
        "A directory or an archive that is named as `source` contains a link that leads out of it or a special file, "
        "or a dump contains a command for the client program. Root could read or write files of others in this way.",
        "Use a source that you trust, without the link or the command.",
    ),
    "E340": (
        "None of the database servers of the study is installed, the installed releases are too old for it, or a "
        "folder "
        "given with `--bin` contains no server that the study supports. Most studies use a single engine.",
        "Install one of the servers that the message names, or name the folder of its programs with "
        "`dbbench study run NAME --bin DIR`.",
    ),
    "E345": (
        "The kernel refused to start an installed program: the limit of processes or memory is reached, or the file "
        "is not executable.",
        "Check `ulimit -u`, free memory, and mounts with `noexec`.",
    ),
    "E346": (
        "A program succeeded, but its output has a format that dbbench does not know.",
        "Run the command listed in `commands` of trial.json by hand, and report its output with the program's version.",
    ),
    "E347": (
        "A query of dbbench itself, for example for counters or a checkpoint, failed. The message has the server's "
        "error.",
        "Read raw/server.log and check the disk.",
    ),
    "E348": (
        "The process was killed, for example because the machine had no free memory, or crashed. The run continues "
        "with the next trial.",
        "Read `launcher.log` of the run and `dmesg`. The same command runs the trial again.",
    ),
    "E349": (
        "A phase exceeded its deadline and was still running 300 s later, because it waits for a server or in the "
        "kernel. The run continues with the next trial.",
        "Read `dmesg`. If the process is in state D, only a reboot releases the device.",
    ),
    "E350": (
        "A thread that reads counters, takes snapshots or talks to another host ended with an exception, so the trial "
        "is incomplete.",
        "Read raw/traceback.txt of the trial and report it.",
    ),
    "E352": (
        "The server or the kernel counted far less work than the load generator reports, or far more. The message has "
        "both counts and the limits.",
        "Check that the load generator is the real program and that no other client uses the server. `work` in "
        "trial.json has the counts.",
    ),
    "E353": (
        "The commits require more flushes than the device received, even if all clients share each flush. With a "
        "binary log each commit needs two.",
        "Look for what discards fsync: a preloaded library, a driver, or the cache mode of a hypervisor.",
    ),
    "E354": (
        "The write-ahead log or the binary log grew by less than the commits or changes that the load generator "
        "reports must write.",
        "Look for unlogged or empty tables, or for a load that changes nothing.",
    ),
    "E355": (
        "During the window the server had files open for writing, or a load on files had files open, that are not on "
        "the filesystem under test; or fio's jobs had no file there. The figures would be those of another filesystem.",
        "Remove what places the files elsewhere: DATA DIRECTORY of a table, a directory or an I/O engine of a fio job.",
    ),
    "E401": (
        "The server process ended or did not answer. The end of its log is in the message.",
        "Read raw/server.log of the trial. Frequent causes are too little memory and an invalid setting.",
    ),
    "E402": (
        "The server crashed or was killed during the trial.",
        "Read raw/server.log of the trial, and `dmesg` for a shortage of memory.",
    ),
    "E403": (
        "pg_checksums, pg_amcheck or CHECK TABLE found corrupt data after the load.",
        "Check the disk and the memory of the machine, and repeat the trial. The filesystem may have a bug.",
    ),
    "E404": (
        "The server did not stop in time or ended with an error.",
        "Read raw/server.log of the trial.",
    ),
    "E405": (
        "The server rejected, rounded or does not have a setting of the plan, or the setting would make the trial's "
        "private server accessible. A value marked (default) is dbbench's: the server reduced it because of a limit of "
        "this machine, which its log names.",
        "Correct `settings` with the values that the message lists, or raise the limit that the server's log names.",
    ),
    "E501": (
        "A statement of the dump failed, the copy differs from the dump, or the server that holds the copy failed. The "
        "message has the line of the dump, the statement and the answer of the server.",
        "Correct what the message names, then run the same command again. Nothing of the copy is kept.",
    ),
    "E502": (
        "Reading the golden copy or writing to the filesystem failed.",
        "Read `dmesg` and check both disks.",
    ),
    "E503": (
        "A file has another checksum than when the dataset was built: the golden copy is damaged, or the data was "
        "altered on its way to the filesystem.",
        "Run `dbbench clean --golden`, then the same command. If the error persists, check the memory and the disks.",
    ),
    "E601": (
        "The load generator ended with an error, or its log does not agree with its summary.",
        "Read raw/pgbench.err or raw/sysbench.err of the trial.",
    ),
    "E602": (
        "Clients stopped or reconnected during the window, so the measured load is not the requested one.",
        "Read `raw/` of the trial, in particular the server log.",
    ),
    "E603": (
        "The load generator stopped before the end of the window without reporting an error.",
        "Read `raw/` of the trial.",
    ),
    "E604": (
        "All clients waited for the whole window, or the window is too short for a single transaction.",
        "Increase `measure`, and look for the cause of the wait in the timelines.",
    ),
    "E605": (
        "The durability class requires that commits reach the disk, but the device received no flush request.",
        "Look for what discards flushes: a driver, or the cache mode of a hypervisor.",
    ),
    "E801": (
        "A file of the results folder is truncated, altered or unreadable, or does not match SHA256SUMS.",
        "Restore the file from a copy, or remove the directory of that trial and run the plan again.",
    ),
    "E802": (
        "The argument is neither the path of a run nor a name in the results folder.",
        "List the runs with `dbbench show`, or name another results folder with `--results DIR`.",
    ),
    "E803": (
        "Another dbbench process is running or cleaning this run. Or its run.json names the hash of your plan, but "
        "contains another plan, other cells or other scripts: it was changed, and what it names is not executed.",
        "Wait for that process or stop it. If the run differs from its plan, start another one with `--name`.",
    ),
    "E804": (
        "The permissions do not allow it, the filesystem is read-only, the name is too long, a directory does not "
        "exist or was moved during the run, or standard output is closed.",
        "Correct the cause, or choose another place with `--results DIR` or `-o FILE`.",
    ),
    "E805": (
        "Two nightly runs at the same time would disturb each other.",
        "Wait until the other one has ended.",
    ),
    "E806": (
        "`dbbench nightly status PLAN` found that the last nightly run is more than 30 hours old.",
        "Read `systemctl status 'dbbench-nightly@*'` and the journal of that unit.",
    ),
    "E807": (
        "There is a symbolic link, FIFO, socket, device or directory in place of a regular file. It was not opened.",
        "Find out who placed it there, and restore the folder from a copy (`cp -aL` replaces links with files).",
    ),
    "E808": (
        "A file is more than a hundred times larger than dbbench writes it, or a series unpacks to more than 100,000 "
        "seconds or five million values. It was not read.",
        "Restore the file from a copy, or remove the directory of that trial and run the plan again.",
    ),
    "E809": (
        "The runs were made with other parameters, versions or devices, so that a mean of all their trials describes "
        "none of them. Packages that only draw or compute may differ, and versions may differ between the hosts of one "
        "plan, because pairs never cross hosts.",
        "Compare a run with the other one without pairs: `dbbench compare NEW --against OLD`.",
    ),
    "E820": (
        "/dev/fuse, libfuse 3, the Python package mfusepy or 2 GiB of memory is missing, or the lab did not start.",
        "Install what the message names. docs/durability.md lists the requirements.",
    ),
    "E821": (
        "A setup lost data that its durability class preserves, in two attempts. dbbench computes the class wrongly, "
        "or the server or the filesystem has a bug.",
        "Report it with the disk image and the server log in the folder of the run.",
    ),
    "E822": (
        "A control setup that must lose data did not. A loss by the other setups would not be detected either, so the "
        "results of this lab are meaningless.",
        "Read the results of the controls, and repeat the lab on an idle machine.",
    ),
    "E823": (
        "More than one cut in ten is invalid, or no recording could be made.",
        "Read the reasons that are printed, and repeat the lab on an idle machine.",
    ),
    "E830": (
        "The folder contains a link or a path outside itself, or another result with the same ID exists already.",
        "Inspect the folder that the message names. Give runs of different hosts different names (`run --name`), or "
        "divide one run between them (`run --share`).",
    ),
    "E831": (
        "No scheduler listens at the address, or no worker connected to it.",
        "Start the scheduler and the workers as docs/fleet.md describes, and read the logs in `results/.fleet/RUN/`.",
    ),
    "E832": (
        "The fleet commands need dask.distributed, which is an optional dependency.",
        'Install the extra `fleet`: `.venv/bin/pip install -e ".[fleet]"` in the checkout.',
    ),
    "E833": (
        "The address does not use TLS, or other users can read the private key. Everyone who can connect to a "
        "scheduler can run commands as root; on this machine, that would be every account.",
        "Use a `tls://` address, and `chmod 600` for the key.",
    ),
    "E834": (
        "The host refused its blocks or did not answer for a long time, and no other host could replace it.",
        "Correct the cause on that host, then run the same command again to resume.",
    ),
    "E835": (
        "The command `fleet run --local` was killed or its terminal was closed. Its host finished the current trial "
        "and stopped.",
        "Run the same `fleet run` command again to resume. With `--detach`, hosts continue without it.",
    ),
    "E836": (
        "The host ran its blocks until the budget of the plan was over. The coordinator drops the block that the host "
        "could not finish, and continues.",
        "Nothing needs to be done. A larger `budget` gives more blocks.",
    ),
    "E900": (
        "A tool ended with an unexpected exit status. Its output is in the message.",
        "Correct the cause that the tool reports.",
    ),
    "E901": (
        "A phase or a program hangs, or its deadline is too short for this disk.",
        "Increase the deadline of the phase under `[deadlines]` in the plan.",
    ),
    "E902": (
        "The command received SIGINT (Ctrl-C). Completed trials are kept.",
        "Run the same command again to resume.",
    ),
    "E903": (
        "The command received SIGTERM. Completed trials are kept.",
        "Run the same command again to resume.",
    ),
    "E999": (
        "dbbench failed in an unexpected way.",
        "Report it with the output of `-v`, or with raw/traceback.txt of the trial.",
    ),
}
