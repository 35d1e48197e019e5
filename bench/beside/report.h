/* report.h: what `kops-bench beside` measured, as text and JSON. */
#ifndef KOPS_BENCH_BESIDE_REPORT_H
#define KOPS_BENCH_BESIDE_REPORT_H

#include "beside/heavy.h"
#include "beside/light.h"

/* One load: beside the light user; or with --two of two users, who have the rates alone[i] and beside[i]. */
struct beside_row {
	struct load load;
	char why[CLI_WHY_BYTES]; /* the device refuses the load; "": it was measured */
	char kernel[32];
	struct light_times light;
	struct rate alone, beside[HEAVIES_MAX];
};

struct beside {
	struct bench bench;
	bool two;
	unsigned out; /* jobs that a heavy user keeps out */
	uint64_t count, every_us;
	struct heavy heavies[HEAVIES_MAX];
	size_t n_heavies;
	char note[CLI_WHY_BYTES + 128]; /* why kopsd sees one user only; "": it sees two */
	struct loads loads;
	struct light light;
	struct light_times quiet; /* without a heavy user */
	struct beside_row rows[LOADS_MAX];
	size_t n_rows;
};

/* Text, a line as soon as its figures are known. Flush after it: the next line may take a while. */
void beside_print_head(struct beside *b);
void beside_print_row(struct beside *b, struct beside_row *row);
void beside_print_end(const struct beside *b);

void beside_json(struct beside *b, bool ok);

#endif
