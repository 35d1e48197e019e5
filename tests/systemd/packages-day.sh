#!/bin/sh
# An administrator's day with packages, inside the booted tree: see packages.
set -u
conf=/etc/kopsd/kopsd.conf
blas=libblas.so.3-$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)

. /day-lib.sh
ours() { find /etc /usr /var/cache /var/lib/systemd /run -name '*kops*' ! -path '/run/systemd/*' 2>/dev/null; }

ours >/before
# apt puts libkops0 in place before the programs that need it, so those that start meanwhile find it.
apt_get() {
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" </dev/null
}
apt_get /packages/previous/*.deb || die "installation"
previous=$(dpkg-query -W -f '${Version}' kopsd)
kops-client ping || die "no client is served after the installation"
kops-bench -V || die "kops-bench"
getent group kops >/dev/null && getent passwd kopsd >/dev/null || die "no user and group"
[ "$(stat -c %G /run/kopsd/kopsd.sock)" = kops ] || die "the socket is not the group's"
[ -f /usr/share/man/man8/kopsd.8.gz ] || die "no manual"
ok "installed $previous"

case $(update-alternatives --query "$blas" | sed -n 's/^Value: //p') in
*/kops-blas/*) die "libkops-blas is the system's BLAS without having been asked for" ;;
esac
update-alternatives --query "$blas" | grep -q kops-blas || die "libkops-blas is no alternative"
update-alternatives --set "$blas" "$(update-alternatives --list "$blas" | grep kops-blas)" || die "it cannot be chosen"
ok "an alternative for BLAS"

# Clients that come, and one that stays, while the packages are replaced.
echo 'max-jobs = 77' >>$conf
head -c 1048576 /dev/zero >/a.bin
upgrade() {
	rm -f /enough
	(while [ ! -e /enough ]; do kops-client sgemm -q /a.bin /a.bin -o /dev/null || echo failed; done) >/clients 2>&1 &
	clients=$!
	kops-bench ipc --count 200000 --timeout 1min >/bench 2>&1 &
	bench=$!
	sleep 1
	before=$(pid)
	apt_get --reinstall /packages/*.deb || die "upgrade"
	kops-client ping || die "no client is served after the upgrade"
	[ "$(pid)" != "$before" ] || die "the daemon is the one from before the upgrade"
	grep -q 'max-jobs = 77' $conf || die "the upgrade lost an edited kopsd.conf"
	touch /enough
	wait $clients
	[ ! -s /clients ] || die "clients failed during the upgrade: $(cat /clients)"
	kill -0 $bench 2>/dev/null || grep -q 'jobs' /bench || die "the client that stayed failed: $(cat /bench)"
	kill $bench 2>/dev/null
}
upgrade
[ "$(dpkg-query -W -f '${Version}' kopsd)" != "$previous" ] || die "the version is the one from before the upgrade"
kops-client top -b | grep -q "^cpu " || die "kops-client top"
kopsd --check-config >/dev/null || die "the settings from before the upgrade are wrong now"
ok "upgraded from $previous with clients at work"

scrape() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/9847 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3' >/metrics 2>&1; }
for _ in 1 2 3 4 5 6 7 8 9 10; do
	scrape && break
	sleep 0.5
done
grep -q "^kops_up 1" /metrics || die "kops-exporter: $(systemctl --no-pager status kops-exporter; cat /metrics)"
grep -q 'user="root"' /metrics || die "kops-exporter does not see other users"
ok "metrics"

# A second daemon, made by the administrator.
printf 'devices = cpu\n' >/etc/kopsd/lab.conf
systemctl enable --quiet --now kopsd@lab.socket kopsd@lab.service || die "a second daemon"
lab_ping() { KOPS_SOCKET=/run/kopsd/lab.sock kops-client ping; }
lab_pid() { systemctl show -p MainPID --value kopsd@lab.service; }
lab_ping || die "no client is served by the second daemon"
ok "a second daemon"

lab_before=$(lab_pid)
upgrade
lab_ping || die "no client is served by the second daemon after the upgrade"
[ "$(lab_pid)" != "$lab_before" ] || die "the second daemon is the one from before the upgrade"
ok "installed again, with two daemons"

dpkg -r kops-bench kops-exporter libkops-blas kopsd libkops0 || die "removal"
systemctl is-active -q kopsd.socket && die "the socket is there after the removal"
! grep -qx kopsd /proc/[0-9]*/comm 2>/dev/null || die "a daemon is there after the removal"
[ -f $conf ] || die "the removal took kopsd.conf"
update-alternatives --query "$blas" | grep -q kops-blas && die "the alternative is left"
rm /etc/kopsd/lab.conf # the administrator's
dpkg -P kops-bench kops-exporter libkops-blas kopsd libkops0 || die "purge"
ours | diff /before - || die "the purge leaves something"
ok "removed and purged"
