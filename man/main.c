/*
 * kops-manual FOLDER KOPS_H: writes the manual pages whose text has one source elsewhere, and the completions
 * for shells: of the programs from what they print for -h, of libkops from its header.
 * `kops-manual settings` prints the part of kopsd.conf(5) that daemon/config/config.def has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "config/print.h"
#include "pages.h"
#include "program.h"
#include "scdoc.h"
#include "verb/commands.h"
#include "verbs.h"

FILE *pages_open(const char *folder, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *page = fopen(path, "we");
	if (page)
		return page;
	fprintf(stderr, "kops-manual: cannot write %s: %s\n", path, strerror(errno));
	exit(1);
}

void pages_close(FILE *page)
{
	int failed = ferror(page);

	if (fclose(page) == 0 && !failed)
		return;
	fprintf(stderr, "kops-manual: cannot write a page: %s\n", strerror(errno));
	exit(1);
}

static void settings(void)
{
	struct config_description d;

	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		config_describe(i, &d);
		scdoc_term(stdout, d.name, d.help);
		printf("\n\tDefault %s; %s to %s%s.%s\n", d.value[0] ? d.value : "none", d.min, d.max,
		       d.is_text ? " bytes" : "", d.reloadable ? " Follows a reload." : "");
	}
}

static void completions(const char *folder, const struct completed *c)
{
	static const struct {
		const char *format; /* of the file's name, as the shell looks for it */
		void (*write)(FILE *out, const struct completed *c);
	} shells[] = {{"%s.bash", complete_bash}, {"_%s", complete_zsh}, {"%s.fish", complete_fish}};

	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), shells[i].format, c->name);
		FILE *out = pages_open(folder, name);
		shells[i].write(out, c);
		pages_close(out);
	}
}

/* Of kopsd: its settings, which are flags too, and what it takes beside them. */
static const struct option_row *flags_of_kopsd(void)
{
	static const char *const of_devices[] = {"auto", "cpu", "gpu", NULL};
	static const struct option_type devices = {.takes = "devices", .words = of_devices};
	static const struct option_row others[] = {
		OPTION("config", 0, "FILE", file, socket,
		       "read FILE and FILE.d/*.conf instead of " CONFIG_FILE),
		OPTION("check-config", 0, NULL, switch, check, "print the settings in effect, and exit"),
		OPTION("help", 'h', NULL, switch, help, "print the options and exit"),
		OPTION("version", 'V', NULL, switch, version, "print the version and exit"),
	};
	static struct config_description settings[CONFIG_SETTINGS];
	static struct option_row rows[CONFIG_SETTINGS + sizeof(others) / sizeof(others[0]) + 1];

	memcpy(rows, others, sizeof(others));
	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		struct config_description *d = &settings[i];
		config_describe(i, d);
		rows[sizeof(others) / sizeof(others[0]) + i] =
		    (struct option_row){.name = d->name,
		                        .argument = "VALUE",
		                        .type = strcmp(d->name, "devices") == 0 ? &devices
		                                : d->is_text                    ? &options_file
		                                                                : &options_text,
		                        .help = d->help};
	}
	return rows;
}

int main(int argc, char **argv)
{
	const struct program *programs[] = {commands_program(), bench_program()};

	if (argc == 2 && strcmp(argv[1], "settings") == 0) {
		settings();
		return fflush(stdout) == 0 ? 0 : 1;
	}
	if (argc != 3) {
		fputs("usage: kops-manual FOLDER KOPS_H, or kops-manual settings\n", stderr);
		return 2;
	}
	for (size_t i = 0; i < 2; i++) {
		pages_of_program(argv[1], programs[i]);
		completions(argv[1], &(struct completed){programs[i]->name, programs[i], program_options});
	}
	completions(argv[1], &(struct completed){"kopsd", NULL, flags_of_kopsd()});
	completions(argv[1], &(struct completed){"kops-exporter", NULL, arguments_options});
	pages_of_calls(argv[1], argv[2]);
	return 0;
}
