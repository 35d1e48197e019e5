/*
 * receiver.h: a process that receives descriptors in kopsd's place, and what it and the loop tell each other.
 *
 * To remove a descriptor from a process's table calls the file's flush, also when others hold the file. A file
 * system of the sender's own (FUSE) may never answer that, and no signal ends the wait: the process could not
 * be killed, and would keep all that it has open. So nothing that a client sent gets into kopsd's own table
 * unless it is known to be a memfd, which has no flush.
 *
 * kopsd starts a spawner, which is this program again. The spawner makes receivers, one for each socket that it
 * is sent. A receiver that hangs in a close has nothing of kopsd's. Both end when kopsd does.
 */
#ifndef KOPS_RECEIVER_H
#define KOPS_RECEIVER_H

#include <stdbool.h>
#include <stdint.h>

/* With a connection: what to do with the datagram that is the first in it. */
struct receive_order {
	uint32_t bytes_max; /* a longer datagram is KOPS_E_PROTOCOL */
	bool drops;         /* takes the bytes only: the kernel lets go of the descriptors, without flush */
};

/* The answer: this, then the datagram's bytes, and with them the descriptor if it is a memfd and came alone. */
struct receive_report {
	int32_t status; /* 0, or as of message_recv() */
	uint32_t bytes; /* of the datagram */
	uint32_t n_fds; /* that came with it, as far as is known */
	int32_t error;  /* one came alone: errno of asking for its seals; 0: it is passed on */
	bool lost;      /* there was no room for some of them */
	bool dropped;   /* as ordered */
	bool closes;    /* it has some to close: a byte follows when that is done */
};

/* Runs this program as the spawner: its process, and the socket to send sockets by. 0 or an errno. */
int spawner_start(int *ret_socket, int *ret_pid);

/* Whether this process is to be the spawner. To be asked first in main(). */
bool spawner_is_wanted(char **argv);
void __attribute__((noreturn)) spawner_main(void);

#endif
