#include "server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics.h"

#define CONNECTIONS 64  /* at once; more wait */
#define IDLE_S      120 /* then a connection is closed. Prometheus keeps its own, and asks every minute */

static const char page[] = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>kops-exporter</title></head>\n"
                           "<body><h1>kops-exporter " KOPS_VERSION "</h1>\n"
                           "<p><a href=\"/metrics\">Metrics</a> of kopsd, for Prometheus.</p></body></html>\n";
static const char not_found[] = "there are / and /metrics\n", not_allowed[] = "only GET and HEAD\n",
                  no_memory[] = "out of memory\n";

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

static enum MHD_Result reply_metrics(struct MHD_Connection *connection, struct source *source)
{
	struct answer answer = source_ask(source);
	char *text;
	size_t bytes;
	int status = metrics_text(&answer, &text, &bytes);

	source_free_answer(&answer);
	if (status < 0)
		return reply_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "text/plain", no_memory);
	struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
	if (!response)
		free(text);
	return reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", response);
}

static bool is_read(const char *method)
{
	return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

static enum MHD_Result answer(void *source, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body, size_t *body_bytes,
                              void **state)
{
	(void)version, (void)body;
	/* The first call has the header only, and later ones a body, which nobody needs. */
	if (!*state || *body_bytes > 0) {
		*state = source;
		*body_bytes = 0;
		return MHD_YES;
	}
	if (!is_read(method))
		return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", not_allowed);
	if (strcmp(url, "/metrics") == 0)
		return reply_metrics(connection, source);
	if (strcmp(url, "/") == 0)
		return reply_text(connection, MHD_HTTP_OK, "text/html; charset=utf-8", page);
	return reply_text(connection, MHD_HTTP_NOT_FOUND, "text/plain", not_found);
}

/* ---- The address ---- */

/* getaddrinfo() takes 65536 for 0. */
static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= 5 && !text[digits] && atoi(text) <= 65535;
}

/* "[::1]:9847": "::1" and "9847", in *text, which it cuts. False: there is no port. */
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

/* To free with freeaddrinfo(). */
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

struct server *server_start(const char *listen, struct source *source, char why[CLI_WHY_BYTES])
{
	struct addrinfo *at = resolve(listen, why);

	if (!at)
		return NULL;
	unsigned flags =
	    MHD_USE_AUTO_INTERNAL_THREAD | (at->ai_family == AF_INET6 ? (unsigned)MHD_USE_IPv6 : 0);
	struct MHD_Daemon *http =
	    MHD_start_daemon(flags, 0, NULL, NULL, answer, source, MHD_OPTION_SOCK_ADDR, at->ai_addr,
	                     MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
	                     (unsigned)IDLE_S, MHD_OPTION_END);
	if (!http)
		snprintf(why, CLI_WHY_BYTES, "cannot listen at %s: %s", listen, strerror(errno));
	freeaddrinfo(at);
	return (struct server *)http;
}

void server_stop(struct server *server)
{
	MHD_stop_daemon((struct MHD_Daemon *)server);
}

unsigned server_port(struct server *server)
{
	return MHD_get_daemon_info((struct MHD_Daemon *)server, MHD_DAEMON_INFO_BIND_PORT)->port;
}
