/*
 * receiver.h: a process that receives descriptors for kopsd, and the messages between it and the loop.
 *
 * Closing a descriptor calls the file's flush, even if other processes have the file open. A file system of the
 * sender's own (FUSE) may never answer that, and no signal ends the wait. The process could not be killed, and
 * would keep all that it has open. So no descriptor from a client enters kopsd's own table unless it is known
 * to be a memfd, which has no flush.
 *
 * kopsd starts a spawner, which is this program again. The spawner makes a receiver for each socket that it is
 * sent. A receiver that hangs in a close holds nothing of kopsd's. Both end when kopsd does.
 */
#ifndef KOPS_RECEIVER_H
#define KOPS_RECEIVER_H

#include <stdbool.h>
#include <stdint.h>

/* Sent with a connection: what to do with its first datagram. */
struct receive_order {
	uint32_t bytes_max; /* a longer datagram is KOPS_E_PROTOCOL */
	bool drops;         /* read the bytes only: the kernel discards the descriptors, without flush */
};

/* The answer. The datagram's bytes follow, with the descriptor if it is a memfd and came alone. */
struct receive_report {
	int32_t status; /* 0, or an error of message_recv() */
	uint32_t bytes; /* of the datagram */
	uint32_t n_fds; /* descriptors that came with it, as far as is known */
	int32_t error;  /* of a single descriptor: 0: it is passed on; else errno of reading its seals */
	bool lost;      /* there was no room for some descriptors */
	bool dropped;   /* as ordered */
	bool closes;    /* the receiver is closing descriptors; it sends a byte when that is done */
};

/* Starts this program as the spawner. Returns its process, and the socket that takes sockets. 0 or an errno. */
int spawner_start(int *ret_socket, int *ret_pid);

/* Returns true if this process is to be the spawner. Must be called first in main(). */
bool spawner_is_wanted(char **argv);
void __attribute__((noreturn)) spawner_main(void);

#endif
