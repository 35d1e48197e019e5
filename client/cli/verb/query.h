/* query.h: what devices, ops and stats share: ask kopsd, then print. */
#ifndef KOPS_CLI_VERB_QUERY_H
#define KOPS_CLI_VERB_QUERY_H

#include "cli.h"
#include "json.h"

struct query {
	void (*text)(const kops_info *info);
	void (*json)(struct json *json, const kops_info *info); /* members of the document */
};

/* --json and --timeout. */
extern const struct option_row query_options[];

/* The whole verb. */
int query_run(struct cli *cli, const struct query *query);

#endif
