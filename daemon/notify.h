/*
 * notify.h: talks to the service manager without libsystemd: sd_notify(3) and LISTEN_FDS.
 */
#ifndef KOPS_NOTIFY_H
#define KOPS_NOTIFY_H

#include <stdint.h>

/*
 * Sends "READY=1", "STATUS=…", "WATCHDOG=1", … (several lines allowed) to $NOTIFY_SOCKET, a path or abstract.
 * Returns 0 when sent, or if there is no manager; else KOPS_E_SYSTEM.
 */
int notify(const char *state);

/* Sends RELOADING=1 with MONOTONIC_USEC, as Type=notify-reload requires. */
int notify_reloading(void);

/* The manager's limit between two WATCHDOG=1, in ms ($WATCHDOG_USEC, $WATCHDOG_PID); 0: no watchdog. */
uint64_t notify_watchdog_ms(void);

/*
 * Returns the one inherited SOCK_SEQPACKET listening socket ($LISTEN_FDS, $LISTEN_PID), made close-on-exec and
 * non-blocking. -1: none is passed. KOPS_E_INVALID: something else is passed. Unsets the variables.
 */
int notify_inherited_socket(void);

#endif
