#!/bin/bash
# The steps of a trial without its load, as a shell script: mkfs, restore, start, checkpoint, stop, make the filesystem
# cold and prove it, start, stop, check, measure the space.
# by_hand.sh IMAGE GOLDEN-DATA BIN   (root; it prints nothing, because the benchmark measures only its duration)
# Like a trial, it leaves the rest of the page cache as it is.
set -euo pipefail
image=$1 golden=$2 bin=$3
room=$(mktemp -d /tmp/by-hand-XXXXXX)
chmod 755 "$room"; mkdir "$room/mnt" "$room/s"; chown postgres "$room/s"
loop=$(losetup --find --show --direct-io=on "$image")
trap 'umount "$room/mnt" 2>/dev/null || :; losetup -d "$loop"; rm -rf "$room"' EXIT
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
server() { as_postgres "$bin/pg_ctl" -D "$room/mnt/data" -s -w -l "$room/s/log" \
    -o "-c listen_addresses= -c unix_socket_directories=$room/s -c shared_buffers=256MB" "$@"; }

wipefs -qa "$loop"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$loop"
mount -o noatime "$loop" "$room/mnt"
cp -a "$golden" "$room/mnt/data"
chown -R postgres:postgres "$room/mnt/data"; chmod 700 "$room/mnt/data"
echo 'local all all trust' > "$room/mnt/data/pg_hba.conf"
sync -f "$room/mnt"
server start
"$bin/psql" -qh "$room/s" -U dbbench postgres -c CHECKPOINT
server -m fast stop

umount "$room/mnt"
blockdev --flushbufs "$loop"
mount -o noatime "$loop" "$room/mnt"
find "$room/mnt/data/base" -type f -size +0 -exec fincore --bytes --noheadings {} + >/dev/null

server start
server -m fast stop
as_postgres "$bin/pg_checksums" --check -D "$room/mnt/data" >/dev/null
server start
as_postgres "$bin/pg_amcheck" -h "$room/s" -U dbbench -d dbbench --jobs=2 --no-dependent-toast >/dev/null
server -m fast stop
du -s "$room/mnt/data" >/dev/null
find "$room/mnt/data/base" -type f -size +1M -exec filefrag {} + >/dev/null
