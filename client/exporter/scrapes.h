/*
 * scrapes.h: requests of /metrics. One question to kopsd answers all requests that wait when it is asked. So if
 * kopsd hangs, each is delayed by two questions at most, however many there are.
 *
 * A thread asks; libmicrohttpd's thread serves other connections meanwhile.
 */
#ifndef KOPS_EXPORTER_SCRAPES_H
#define KOPS_EXPORTER_SCRAPES_H

#include <microhttpd.h>

#include "places.h"
#include "source.h"

struct scrapes;

/* Starts the thread, which alone uses *source until scrapes_stop(). NULL: out of memory or threads. */
struct scrapes *scrapes_start(struct source *source);

/*
 * Has kopsd asked. Returns false if there is an answer for scrapes_reply(); if very many requests wait, it is
 * the latest one. Returns true if kopsd did not answer at once. The connection is then suspended until it did,
 * or its time is over, and the request comes again for scrapes_reply().
 */
bool scrapes_wait(struct scrapes *s, struct place *p, struct MHD_Connection *connection);

/* Queues the latest answer. */
enum MHD_Result scrapes_reply(struct scrapes *s, struct MHD_Connection *connection);

/* Ends the thread after the current question. Nothing is suspended from here on. */
void scrapes_stop(struct scrapes *s);
void scrapes_free(struct scrapes *s);

#endif
