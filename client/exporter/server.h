/* server.h: serves /metrics for Prometheus and / for people, with libmicrohttpd. */
#ifndef KOPS_EXPORTER_SERVER_H
#define KOPS_EXPORTER_SERVER_H

#include "source.h"

struct server;

/*
 * Serves at "ADDRESS:PORT" on its own threads, which alone use *source until server_stop(). "[::1]:9847" is
 * IPv6, ":9847" every address, port 0 any free one. Returns NULL with a sentence in why.
 */
struct server *server_start(const char *listen, struct source *source, char why[CLI_WHY_BYTES]);
void server_stop(struct server *server);

unsigned server_port(struct server *server);

#endif
