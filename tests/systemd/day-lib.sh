# Sourced by the days inside the booted tree.
die() {
	echo "FAILED: $*"
	systemctl --no-pager status kopsd.service kopsd.socket
	journalctl --no-pager -n 60 -u kopsd.service -u kopsd.socket
	exit 1
}

ok() { echo "ok: $*"; }
pid() { systemctl show -p MainPID --value kopsd.service; }
