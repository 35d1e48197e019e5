/*
 * scrapes.h: requests of /metrics. One question to kopsd answers all that wait when it is asked. A kopsd that
 * hangs so delays each of them by two questions at most, however many there are.
 *
 * A thread asks. libmicrohttpd's thread goes on with other connections meanwhile.
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
 * Has kopsd asked. True: it did not answer at once, and the connection is suspended until it has, or has not in
 * time. The request then comes again, for scrapes_reply(). False: there is an answer. Where very many wait, it
 * is the latest one.
 */
bool scrapes_wait(struct scrapes *s, struct place *p, struct MHD_Connection *connection);

/* Queues the latest answer. */
enum MHD_Result scrapes_reply(struct scrapes *s, struct MHD_Connection *connection);

/* Ends the thread: waits for a question that is out. Nothing is suspended from here on. */
void scrapes_stop(struct scrapes *s);
void scrapes_free(struct scrapes *s);

#endif
