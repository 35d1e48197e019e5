#include "server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scrapes.h"

/* Seconds until the first request and between requests: Prometheus keeps its connection. */
#define REQUEST_S 10
#define IDLE_S    120

struct server {
	struct MHD_Daemon *http;
	struct places places;
	struct scrapes *scrapes;
};

static const char page[] = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>kops-exporter</title></head>\n"
                           "<body><h1>kops-exporter " KOPS_VERSION "</h1>\n"
                           "<p><a href=\"/metrics\">Metrics</a> of kopsd, for Prometheus.</p></body></html>\n";
static const char not_found[] = "there are / and /metrics\n", not_allowed[] = "only GET and HEAD\n";

/* ---- Requests ---- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
                             struct MHD_Response *response)
{
	enum MHD_Result queued = MHD_NO;

	if (!response)
		return MHD_NO; /* closes the connection */
	if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
	    (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
	     MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES))
		queued = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return queued;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status, const char *type,
                                  const char *text)
{
	return reply(connection, status, type,
	             MHD_create_response_from_buffer(strlen(text), (char *)text, MHD_RESPMEM_PERSISTENT));
}

static bool is_read(const char *method)
{
	return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

static enum MHD_Result reply_metrics(struct server *s, struct place *p, struct MHD_Connection *connection)
{
	bool has_waited = p->waits;

	p->waits = NULL;
	return !has_waited && scrapes_wait(s->scrapes, p, connection) ? MHD_YES
	                                                              : scrapes_reply(s->scrapes, connection);
}

static enum MHD_Result reply_to(struct server *s, struct place *p, struct MHD_Connection *connection,
                                const char *url, const char *method)
{
	if (!is_read(method))
		return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", not_allowed);
	if (strcmp(url, "/metrics") == 0)
		return reply_metrics(s, p, connection);
	if (strcmp(url, "/") == 0)
		return reply_text(connection, MHD_HTTP_OK, "text/html; charset=utf-8", page);
	return reply_text(connection, MHD_HTTP_NOT_FOUND, "text/plain", not_found);
}

static enum MHD_Result answer(void *server, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body, size_t *body_bytes,
                              void **state)
{
	struct place *p =
	    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;

	(void)version, (void)body;
	if (!p)
		return MHD_NO; /* there was no memory for the connection */
	/* The first call comes with the headers only. Bodies come later and are ignored. */
	if (!*state || *body_bytes > 0) {
		*state = p;
		*body_bytes = 0;
		return MHD_YES;
	}
	return reply_to(server, p, connection, url, method);
}

/* Called when a request has ended, successfully or not. */
static void note_completed(void *server, struct MHD_Connection *connection, void **state,
                           enum MHD_RequestTerminationCode code)
{
	(void)server;
	if (*state && code == MHD_REQUEST_TERMINATED_COMPLETED_OK) {
		places_answered(*state);
		MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_S);
	}
	*state = NULL;
}

static void note_connection(void *server, struct MHD_Connection *connection, void **place,
                            enum MHD_ConnectionNotificationCode code)
{
	struct server *s = server;

	if (code != MHD_CONNECTION_NOTIFY_STARTED) {
		places_leave(*place);
		return;
	}
	*place = places_take(
	    &s->places, MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
	    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
}

/* ---- The address ---- */

/* Checks the port, since getaddrinfo() takes 65536 for 0. */
static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= 5 && !text[digits] && atoi(text) <= 65535;
}

/* Cuts "[::1]:9847" into "::1" and "9847", in place. Returns false if there is no port. */
static bool split(char *text, const char **ret_host, const char **ret_port)
{
	char *colon = strrchr(text, ':');

	if (!colon || !is_port(colon + 1))
		return false;
	*colon = '\0';
	*ret_port = colon + 1;
	if (text[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		text++;
	}
	*ret_host = *text ? text : NULL;
	return true;
}

/* The caller frees the result with freeaddrinfo(). */
static struct addrinfo *resolve(const char *listen, char why[CLI_WHY_BYTES])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
	char text[512];
	const char *host, *port;

	snprintf(text, sizeof(text), "%s", listen);
	if (!split(text, &host, &port)) {
		why_invalid(why, "--listen takes ADDRESS:PORT, not '%s'", listen);
		return NULL;
	}
	int error = getaddrinfo(host, port, &hints, &found);
	if (error == 0)
		return found;
	why_invalid(why, "--listen takes ADDRESS:PORT, not '%s': %s", listen, gai_strerror(error));
	return NULL;
}

/* Returns NULL with errno. */
static struct MHD_Daemon *start_http(struct server *s, const struct addrinfo *at)
{
	/* Uses poll(): with epoll, 0.9.75 misses that a client leaves after half a request. */
	unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
	                 (at->ai_family == AF_INET6 ? (unsigned)MHD_USE_IPv6 : 0);

	/* Allows one connection more, for a new one while its victim closes. */
	return MHD_start_daemon(flags, 0, NULL, NULL, answer, s, MHD_OPTION_SOCK_ADDR, at->ai_addr,
	                        MHD_OPTION_CONNECTION_LIMIT, (unsigned)PLACES + 1,
	                        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)REQUEST_S,
	                        MHD_OPTION_NOTIFY_CONNECTION, note_connection, s, MHD_OPTION_NOTIFY_COMPLETED,
	                        note_completed, s, MHD_OPTION_END);
}

struct server *server_start(const char *listen, struct source *source, char why[CLI_WHY_BYTES])
{
	struct addrinfo *at = resolve(listen, why);
	struct server *s = at ? calloc(1, sizeof(*s)) : NULL;

	if (!at)
		return NULL;
	snprintf(why, CLI_WHY_BYTES, "out of memory or threads");
	if (!s)
		goto no_server;
	s->scrapes = scrapes_start(source);
	if (!s->scrapes)
		goto no_scrapes;
	s->http = start_http(s, at);
	if (!s->http)
		goto no_http;
	freeaddrinfo(at);
	return s;

no_http:
	snprintf(why, CLI_WHY_BYTES, "cannot listen at %s: %s", listen, strerror(errno));
	scrapes_stop(s->scrapes);
	scrapes_free(s->scrapes);
no_scrapes:
	free(s);
no_server:
	freeaddrinfo(at);
	return NULL;
}

void server_stop(struct server *s)
{
	scrapes_stop(s->scrapes);
	MHD_stop_daemon(s->http);
	scrapes_free(s->scrapes);
	free(s);
}

unsigned server_port(struct server *s)
{
	return MHD_get_daemon_info(s->http, MHD_DAEMON_INFO_BIND_PORT)->port;
}
