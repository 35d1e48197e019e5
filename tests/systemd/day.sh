#!/bin/sh
# An administrator's day, inside the booted tree: see boot.
set -u
conf=/etc/kopsd/kopsd.conf
good=/root/kopsd.conf

. /day-lib.sh
served() { kops-client ping >/dev/null || die "$1: no client is served"; }
refusals() { journalctl --no-pager -q -p err -u kopsd.service | grep -c "$1"; }

ldconfig # the installation was staged with DESTDIR
systemd-sysusers && systemd-tmpfiles --create || die "users and folders"
systemctl daemon-reload
systemctl enable --now kopsd.socket kopsd.service 2>/dev/null || die "enable"
served "after the start"
[ "$(stat -c %U /run/kopsd/state/kopsd.sock.running)" = kopsd ] || die "no file of the jobs at work"
[ "$(stat -c %U "/proc/$(pid)/environ")" = kopsd ] || die "the daemon is not dumpable"
[ "$(awk '/^Max core/ { print $5 }' "/proc/$(pid)/limits")" = unlimited ] || die "no core dumps"
# Steps that may fail would be shown by status as failed all the same.
systemctl show -p ExecStartPre kopsd.service | grep 'status=[^0]' && die "a start that went well shows a failed step"
ok "started"

# A member of the group, by number, gets a socket of its own, which is of no use without the group.
as_user() { setpriv --reuid 1234 --regid "$1" --clear-groups kops-client ping >/dev/null 2>&1; }
as_user kops || die "a member of the group is not served"
[ -S /run/kopsd/kopsd.sock.users/1234 ] || die "a user that got in has no socket of its own"
as_user kops || die "a member of the group is not served again"
as_user 1234 && die "who is not in the group is served"
ok "sockets of users"

# One of a user's own, by the user's systemd. Nothing here makes its folder, which a login would.
own=/run/user/1500
own_systemctl() { setpriv --reuid 1500 --regid 1500 --clear-groups env XDG_RUNTIME_DIR=$own HOME=$own systemctl --user "$@"; }
own_client() { setpriv --reuid 1500 --regid 1500 --clear-groups env XDG_RUNTIME_DIR=$own kops-client "$@"; }
useradd --uid 1500 --home-dir $own own && install -d -m 700 -o own -g own $own || die "a user"
systemd-run --quiet --unit=own --uid=own --gid=own -p Delegate=yes -E XDG_RUNTIME_DIR=$own -E HOME=$own /lib/systemd/systemd --user ||
	die "the user's systemd"
tries=0
until own_systemctl is-active -q basic.target; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || die "the user's systemd does not start: $(journalctl --no-pager -n 20 -u own)"
	sleep 0.1
done
own_systemctl start kopsd.socket || die "the user's socket"
[ "$(stat -c %a $own/kopsd.sock)" = 600 ] || die "others may connect to a user's own kopsd"
own_client ping --timeout 300 || die "the user's own kopsd: $(journalctl --no-pager -n 20 -u own)"
own_systemctl is-active -q kopsd.service || die "another kopsd answered"
[ "$(stat -c %U "/proc/$(own_systemctl show -p MainPID --value kopsd.service)")" = own ] || die "it is not the user's"
own_systemctl kill -s KILL kopsd.service
own_client ping --timeout 300 || die "the user's own kopsd after a kill: $(journalctl --no-pager -n 20 -u own)"
own_systemctl stop kopsd.socket kopsd.service || die "stop the user's own"
systemctl stop own.service
served "by the host's daemon afterwards"
ok "a user's own"

# Another one beside it, of which a crash, a reload and the end do not touch the first.
lab_pid() { systemctl show -p MainPID --value kopsd@lab.service; }
first=$(pid)
systemctl start kopsd@lab.service 2>/dev/null && die "a second daemon started without settings"
systemctl stop kopsd@lab.socket
printf 'devices = cpu\nmax-jobs = 5\n' >/etc/kopsd/lab.conf
systemctl enable --now kopsd@lab.socket kopsd@lab.service 2>/dev/null || die "enable a second daemon"
export KOPS_SOCKET=/run/kopsd/lab.sock
served "by a second daemon"
for file in /run/kopsd/state-lab/kopsd.sock.running /var/cache/kopsd/lab; do
	[ "$(stat -c %U $file)" = kopsd ] || die "$file is not the second daemon's"
done
systemctl reload kopsd@lab.service || die "a reload of the second daemon"
kill -9 "$(lab_pid)"
served "by a second daemon after a kill"
head -c 4096 /dev/zero >/root/x.bin
kops-client softmax -n 32 -q /root/x.bin -o /dev/null || die "a job of the second daemon"
unset KOPS_SOCKET
[ "$(pid)" = "$first" ] || die "the first daemon is another one"
systemctl disable --quiet kopsd@.socket kopsd@.service || die "disable all others"
systemctl stop kopsd@lab.socket kopsd@lab.service || die "stop the second daemon"
[ ! -e /run/kopsd/lab.sock ] || die "the second socket is left behind"
served "by the first daemon alone"
ok "a second daemon"

for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
	systemctl restart kopsd.service || die "restart $i"
done
served "after thirteen restarts"
systemctl is-active -q kopsd.socket || die "the socket is gone after thirteen restarts"
ok "thirteen restarts"

cp $conf $good
echo 'max-jobz = 3' >>$conf
for i in 1 2 3; do
	systemctl restart kopsd.service 2>/dev/null && die "a start with a typo in the settings succeeded"
	[ $i -gt 1 ] || sleep 2
	[ "$(refusals max-jobz)" = $i ] || die "$i starts with a typo, and $(refusals max-jobz) sentences in journalctl -p err"
done
cp $good $conf
systemctl start kopsd.service || die "the start after the typo was corrected"
systemctl start kopsd.socket || die "the socket after the typo was corrected"
served "after the typo was corrected"
ok "a typo is said once for each start, and its correction is all that it takes"

# With a client that waits, the socket starts the daemon once a second: more often than the start limit would allow.
seconds=12
for wrong in 'max-jobz = 3' 'devices = cpuu'; do
	rm -f /run/answered
	echo "$wrong" >>$conf
	systemctl restart kopsd.service 2>/dev/null && die "a start with $wrong succeeded"
	{ until kops-client ping; do sleep 0.1; done; touch /run/answered; } >/dev/null 2>&1 &
	sleep $seconds
	systemctl is-active -q kopsd.socket || die "the socket is gone after $wrong"
	[ -S /run/kopsd/kopsd.sock ] || die "the socket's file is gone after $wrong"
	[ ! -e /run/answered ] || die "a client was served with $wrong"
	cp $good $conf
	systemctl restart kopsd.service || die "the restart after $wrong was corrected"
	wait
	[ -e /run/answered ] || die "the waiting client is not served after $wrong was corrected"
	seconds=2
done
ok "clients wait for the correction"

before=$(pid)
echo 'max-jobs = many' >>$conf
systemctl reload kopsd.service 2>/dev/null && die "a reload of wrong settings succeeded"
[ "$(refusals 'max-jobs')" -ge 1 ] || die "the reload does not say why"
[ "$(pid)" = "$before" ] || die "a reload of wrong settings ended the daemon"
served "after a reload of wrong settings"
cp $good $conf
systemctl reload kopsd.service || die "a reload"
[ "$(pid)" = "$before" ] || die "a reload ended the daemon"
served "after a reload"
ok "reloads"

kill -9 "$before"
served "after a kill"
[ "$(pid)" != "$before" ] || die "the daemon is the one that was killed"
[ "$(systemctl show -p NRestarts --value kopsd.service)" -ge 1 ] || die "nothing was restarted"
ok "a crash"

systemctl stop kopsd.service || die "stop"
systemctl is-active -q kopsd.socket || die "the socket went with the daemon"
[ -f /run/kopsd/state/kopsd.sock.running ] || die "the file of the jobs at work went with the daemon"
served "by the socket alone"
ok "socket activation"

# Crashes count: a daemon that does not live is left alone in the end, and comes back when asked.
crashes=0
while [ $crashes -lt 20 ] && ! systemctl is-failed -q kopsd.service; do
	p=$(pid)
	[ "$p" = 0 ] || { kill -9 "$p" && crashes=$((crashes + 1)); }
	sleep 0.4
done
[ $crashes -ge 9 ] && [ $crashes -le 12 ] || die "the start limit was hit after $crashes crashes"
systemctl reset-failed kopsd.service kopsd.socket
systemctl start kopsd.socket kopsd.service || die "the start after a row of crashes"
served "after a row of crashes"
ok "a row of $crashes crashes"

systemctl stop kopsd.socket kopsd.service || die "stop of both"
[ ! -e /run/kopsd/kopsd.sock ] || die "the socket is left behind"
ok "stopped"
