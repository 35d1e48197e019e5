/* main.c: kopsd. Options, start, serve, stop. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "config.h"
#include "log.h"
#include "server.h"

enum { EXIT_USAGE = 2 };

static int serve(int argc, char **argv, const struct config *config)
{
	static struct server server;
	char why[CONFIG_WHY_BYTES];
	int code = EXIT_FAILURE;

	signal(SIGPIPE, SIG_IGN);
	log_set_level((int)config->log_level);
	if (server_start(&server, argc, argv, config, why) < 0)
		log_error("%s", why);
	else
		code = server_run(&server);
	server_close(&server);
	return code;
}

int main(int argc, char **argv)
{
	struct config config;
	enum config_action action;
	char why[CONFIG_WHY_BYTES];

	if (config_load(argc, argv, &config, &action, why) < 0) {
		fprintf(stderr, "kopsd: %s\n", why);
		return EXIT_USAGE;
	}
	switch (action) {
	case CONFIG_HELP:
		config_print_help();
		return EXIT_SUCCESS;
	case CONFIG_SHOW_VERSION:
		printf("kopsd " KOPS_VERSION "\n");
		return EXIT_SUCCESS;
	case CONFIG_CHECK:
		config_print(&config);
		return EXIT_SUCCESS;
	case CONFIG_RUN:
		break;
	}
	return serve(argc, argv, &config);
}
