#!/bin/sh
# Installs dbbench from this bundle, without a network: the packages of the tools from apt/, dbbench itself from wheels/
# into /opt/dbbench, with the link /usr/local/bin/dbbench. As root. It removes nothing, creates no cluster and starts no
# service. Run it again after an interruption.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=/opt/dbbench
link=/usr/local/bin/dbbench

fail() {
	echo "error: $1" >&2
	exit 2
}

. /etc/os-release
made_for=$(cat "$here/RELEASE")
this="$ID ${VERSION_ID:-${VERSION_CODENAME:-}} $(dpkg --print-architecture 2>/dev/null || uname -m)"
[ "$made_for" = "$this" ] || fail "this bundle is for $made_for, but this machine is $this. Nothing was changed."
[ "$(id -u)" = 0 ] || fail "only root can install packages. Nothing was changed. Run:  sudo sh $0"
(cd "$here" && sha256sum --check --quiet SHA256SUMS) || fail "the bundle is damaged. Nothing was changed. Copy it again."
case "$(readlink "$link" || { [ ! -e "$link" ] || echo file; })" in
'' | "$target"/*) ;;
*) fail "$link was not created by this script. Nothing was changed. Remove it first." ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
ln -s "$here/apt" "$work/apt" # a path in a list of sources must not contain spaces
echo "deb [trusted=yes] file:$work/apt ./" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt.conf"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
command -v python3 >/dev/null || apt-get install -qy --no-install-recommends --no-remove python3
python3 "$here/packages.py" run
python3 -m venv "$target"
"$target/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$here"/wheels/*.whl
install -m 755 "$here/launcher.sh" "$target/bin/dbbench"
mkdir -p "$(dirname "$link")"
ln -sfn "$target/bin/dbbench" "$link"
for page in "$target"/share/man/man?/*; do
	section=$(basename "$(dirname "$page")")
	mkdir -p "/usr/local/share/man/$section"
	ln -sfn "$page" "/usr/local/share/man/$section/"
done
mkdir -p /usr/local/share/bash-completion/completions
"$link" completion bash >/usr/local/share/bash-completion/completions/dbbench
"$link" --version
echo "Next:  dbbench doctor"
