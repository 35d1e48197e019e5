/*
 * places.h: the connections to kops-exporter. There are PLACES of them. Where all are taken, a new connection
 * gets the place of another: of the address that has most places, the one that was answered longest ago. So
 * clients that say nothing cannot keep Prometheus out, from whatever address they come.
 *
 * For libmicrohttpd's thread alone.
 */
#ifndef KOPS_EXPORTER_PLACES_H
#define KOPS_EXPORTER_PLACES_H

#include <netinet/in.h>
#include <stdbool.h>

/* Prometheus takes one. */
#define PLACES 128

struct places;

struct place {
	struct place *before, *after; /* of all places, the one that was answered longest ago first */
	struct places *of;
	int fd;
	struct in6_addr
	    address;    /* IPv4 is mapped; of IPv6 the network's half, for a host has all of the rest */
	bool is_ending; /* its connection is shut down; libmicrohttpd closes it soon */
	struct MHD_Connection *waits; /* for scrapes.h: a request of it waits for kopsd; NULL: none */
	struct place *next_waiting;
};

struct places {
	struct place *first, *last;
	unsigned n; /* without those that are ending */
};

/* A new connection. Shuts another down where there are PLACES. NULL: no memory. */
struct place *places_take(struct places *all, int fd, const struct sockaddr *peer);

/* A request of it is answered. */
void places_answered(struct place *p);

/* The connection is closed. NULL is allowed. */
void places_leave(struct place *p);

#endif
