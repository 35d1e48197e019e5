# Sourced by the tests here. SKIP is ctest's SKIP_RETURN_CODE.
SKIP=77

need() {
	for tool in "$@"; do
		command -v "$tool" >/dev/null 2>&1 || { echo "skipped: no $tool here"; exit $SKIP; }
	done
}

die() {
	echo "failed: $*" >&2
	exit 1
}

# A directory that goes when the test ends, as does every process in $pids.
pids=
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kops-systemd-XXXXXX")
clean_up() {
	for pid in $pids; do
		kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	done
	rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
