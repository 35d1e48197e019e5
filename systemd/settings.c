/*
 * kops-settings: prints what config.def says, for people: `kops-settings conf` a kopsd.conf with every default
 * as a comment, `kops-settings markdown` the table of docs/operations.md (scripts/gen-docs).
 */
#include <stdio.h>
#include <string.h>

#include "config/print.h"

static void print_conf(void)
{
	struct config_description d;

	puts("# Settings of kopsd. All are at their defaults; take away a '#' to change one.\n"
	     "# Files in kopsd.conf.d/*.conf beside this one are read after it, in order of name.\n"
	     "# kopsd --check-config shows what is in effect. Those marked * follow systemctl reload kopsd.\n"
	     "[kopsd]");
	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		config_describe(i, &d);
		printf("\n# %s%s\n#%s = %s\n", d.reloadable ? "* " : "", d.help, d.name, d.value);
	}
	puts("\n# Other limits for a user, or for the members of a group, of those named -per-uid:\n"
	     "#     [user alice]\n"
	     "#     max-jobs-per-uid = 4096\n"
	     "#     [group lab]\n"
	     "#     max-mapped-per-uid = 128G");
}

static void print_markdown(void)
{
	struct config_description d;

	puts("| setting | default | allowed | reload | by user, group | meaning |\n"
	     "|---|---|---|---|---|---|");
	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		config_describe(i, &d);
		printf("| `%s` | %s | %s … %s%s | %s | %s | %s |\n", d.name, d.value, d.min, d.max,
		       d.is_text ? " bytes" : "", d.reloadable ? "yes" : "no", d.is_limit ? "yes" : "no",
		       d.help);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "conf") == 0) {
		print_conf();
	} else if (argc == 2 && strcmp(argv[1], "markdown") == 0) {
		print_markdown();
	} else {
		fputs("usage: kops-settings conf|markdown\n", stderr);
		return 2;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
