/*
 * places.h: the connections to kops-exporter, at most PLACES. If all places are taken, a new connection
 * replaces another: of the address with most places, the one that was answered longest ago. So idle clients
 * cannot keep Prometheus out, whatever their addresses.
 *
 * Only libmicrohttpd's thread calls this.
 */
#ifndef KOPS_EXPORTER_PLACES_H
#define KOPS_EXPORTER_PLACES_H

#include <netinet/in.h>
#include <stdbool.h>

/* Prometheus uses one. */
#define PLACES 128

struct places;

struct place {
	struct place *before, *after; /* in a list of all places, the one that was answered longest ago first */
	struct places *of;
	int fd;
	struct in6_addr
	    address; /* IPv4 is mapped; of IPv6 only the network half, since a host has all of the other half */
	bool is_ending;               /* its connection is shut down; libmicrohttpd will close it soon */
	struct MHD_Connection *waits; /* for scrapes.h: the request that waits for kopsd; NULL: none */
	struct place *next_waiting;
};

struct places {
	struct place *first, *last;
	unsigned n; /* number of places without those that are ending */
};

/* Adds a new connection. Shuts another one down if all places are taken. NULL: no memory. */
struct place *places_take(struct places *all, int fd, const struct sockaddr *peer);

/* Notes that a request of the connection was answered. */
void places_answered(struct place *p);

/* Removes a closed connection. NULL is allowed. */
void places_leave(struct place *p);

#endif
