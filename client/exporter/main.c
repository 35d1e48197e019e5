/* kops-exporter: kopsd's figures for Prometheus. It is a process of its own, since kopsd uses no network. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "server.h"
#include "standard_fds.h"

/* Blocks signals before there is another thread, which inherits that. */
static void block_signals(sigset_t *ret_ending)
{
	sigemptyset(ret_ending);
	sigaddset(ret_ending, SIGINT);
	sigaddset(ret_ending, SIGTERM);
	pthread_sigmask(SIG_BLOCK, ret_ending, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Serves until a signal comes. Returns an exit code, with a sentence in why if it is not CLI_OK. */
static int serve(const struct flags *flags, char why[CLI_WHY_BYTES])
{
	const char *listen = flags->listen ? flags->listen : ARGUMENTS_LISTEN;
	struct source source = {.socket = flags->socket};
	sigset_t ending;

	block_signals(&ending);
	struct server *server = server_start(listen, &source, why);
	if (!server)
		return CLI_FAILED;
	fprintf(stderr, "kops-exporter: serves /metrics at %.*s:%u\n", (int)(strrchr(listen, ':') - listen),
	        listen, server_port(server));
	sigwait(&ending, &(int){0});
	server_stop(server);
	source_close(&source);
	return CLI_OK;
}

static int run(int argc, char **argv, char why[CLI_WHY_BYTES])
{
	struct flags flags = {.help = false};
	char **args;
	int n_args;

	if (options_parse(arguments_options, argc, argv, &flags, &n_args, &args, why) < 0)
		return CLI_USAGE;
	if (n_args > 0) {
		why_invalid(why, "takes no arguments, got '%s'; see -h", args[0]);
		return CLI_USAGE;
	}
	if (flags.help) {
		puts("Usage: kops-exporter [options]\nServes kopsd's figures to Prometheus.\n\nOptions:");
		options_help(arguments_options);
		return CLI_OK;
	}
	if (flags.version) {
		puts("kops-exporter " KOPS_VERSION);
		return CLI_OK;
	}
	return serve(&flags, why);
}

int main(int argc, char **argv)
{
	char why[CLI_WHY_BYTES] = "";
	int rc;

	standard_fds_open();
	rc = run(argc, argv, why);
	if (rc != CLI_OK)
		fprintf(stderr, "kops-exporter: %s\n", why);
	return rc;
}
