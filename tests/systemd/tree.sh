# Sourced after lib.sh: a Debian of one's own in $root: 12, or another one of which the test names $suite and $in_tree, its
# packages. The tree is made once for all build folders, in $cache.
[ "$(id -u)" = 0 ] || { echo "skipped: a container needs root"; exit $SKIP; }
need systemd-nspawn debootstrap apt-get flock
# What this host builds is to run in a tree of the same release.
if [ -z "${suite:-}" ]; then
	grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || { echo "skipped: the build is not one for Debian 12"; exit $SKIP; }
	suite=bookworm
	in_tree=systemd,systemd-sysv,dbus,libmicrohttpd12,libncursesw6,libuv1,libprotobuf-c1,libopenblas0,libopenblas0-pthread
fi

root=$scratch/root
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kops-tests
tree=$cache/$suite-$(echo "$in_tree" | cksum | tr -d " ") # with other packages it is another tree

make_tree() {
	[ ! -d "$tree" ] || return 0 # by now
	mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 2>/dev/null | awk '$2 == "bookworm" || $2 == "trixie" { print $1; exit }')
	[ -n "$mirror" ] || { echo "skipped: apt knows no mirror of Debian"; exit $SKIP; }
	rm -rf "$cache/$suite"*
	debootstrap --variant=minbase --include="$in_tree" "$suite" "$tree.part" "$mirror" >"$scratch/debootstrap.log" 2>&1 ||
		{ tail -5 "$scratch/debootstrap.log"; echo "skipped: debootstrap did not make a tree"; exit $SKIP; }
	mv "$tree.part" "$tree"
}

# with_lock COMMAND...: what one test makes in $cache, others wait for.
with_lock() {
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	"$@"
	exec 9>&-
}

tree_copy() {
	[ -d "$tree" ] || with_lock make_tree
	cp -a "$tree" "$root"
}

# Boots the tree and runs a script in it, which must end well; then shuts it down.
tree_boot() {
	install -m 755 "$1" "$root/day.sh"
	install -m 644 "$(dirname "$1")/day-lib.sh" "$root/day-lib.sh"
	cat >"$root/etc/systemd/system/day.service" <<'EOF'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/day.sh >/day.log 2>&1; echo $? >/day.status; systemctl poweroff -ff'
[Install]
WantedBy=multi-user.target
EOF
	mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
	ln -s ../day.service "$root/etc/systemd/system/multi-user.target.wants/day.service"

	# Hosts with version 1 of the cgroups have no unified hierarchy to give.
	unified=0
	[ -e /sys/fs/cgroup/cgroup.controllers ] && unified=1
	SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=$unified timeout 240 systemd-nspawn --quiet --register=no --keep-unit --boot \
		--private-network --console=pipe --directory="$root" </dev/null >"$scratch/boot.log" 2>&1 || true
	if [ ! -f "$root/day.log" ]; then
		tail -20 "$scratch/boot.log"
		echo "skipped: the tree does not boot here"
		exit $SKIP
	fi
	cat "$root/day.log"
	[ "$(cat "$root/day.status" 2>/dev/null)" = 0 ] || die "the day did not end well"
}
