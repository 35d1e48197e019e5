#include "verb/stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/threads.h"
#include "progress.h"
#include "show.h"
#include "verb/wait.h"

#define SLOTS       4             /* one that is read, two in flight, one that is written */
#define IN_FLIGHT   2             /* so that the upload of one overlaps the computing of the other */
#define BLOCK_BYTES (32ull << 20) /* of all that a block reads and writes */
#define WHOLE_SHARE 4   /* a block has at least this part of the whole operands, which each job uploads again */
#define ROWS_TILE   128 /* of blocks, so that kernels need no narrower tiles but in the last one */
#define PIECE_BYTES (4ull << 20) /* a multiple of any element's size */
#define VALUES_MAX  (STEP_INPUTS_MAX + 2)
#define PATIENCE_US 500e3
#define INTERVAL_MS 100

/* A value of the pipeline. */
struct part {
	bool is_read;
	uint64_t row_bytes; /* of an index of the cut axis; 0: every block needs the whole */
	kops_buffer *buffers[SLOTS];
	char *data[SLOTS];
};

struct stream {
	struct pipeline *p;
	const struct jobfile_value *line;
	unsigned n_values; /* the last one is the result */
	struct part parts[VALUES_MAX];
	unsigned axis;
	uint64_t extent, rows, blocks; /* of the axis; of a block but the last; how many */
	struct wait_how how;
	double began_us, next_us, reading_us, writing_us;
	_Atomic uint64_t bytes_read, bytes_written;
	uint64_t bytes_to_read, bytes_to_write;
	kops_job *jobs[SLOTS];

	pthread_t reader, writer;
	bool has_reader, has_writer;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint64_t read, computed, written; /* blocks that are through */
	bool ends;                        /* some stage has failed */
	bool is_late;                     /* --timeout was over before all jobs were done */
	char why[CLI_WHY_BYTES];          /* of a thread that has failed; "": none */
};

/* ---- Blocks ---- */

static uint64_t first_row(const struct stream *s, uint64_t block)
{
	return block * s->rows;
}

static uint64_t rows_of(const struct stream *s, uint64_t block)
{
	uint64_t left = s->extent - first_row(s, block);

	return left < s->rows ? left : s->rows;
}

static struct part *result_of(struct stream *s)
{
	return &s->parts[s->n_values - 1];
}

/* Returns the steps on whole values: the op, after a copy of an old matrix that it does not overwrite. */
static size_t whole_steps(const struct stream *s, struct step steps[2])
{
	const struct value *values = s->p->values;
	const kops_view *out = &values[s->n_values - 1].view;
	size_t n = 0;

	if (s->line->has_old && !job_overwrites(s->p, s->line))
		steps[n++] = step_copy(values[s->line->old].view, *out);
	steps[n] = job_step(s->p, s->line);
	steps[n++].out = *out;
	return n;
}

static bool cut(const struct stream *s, struct step *steps, size_t n, uint64_t first, uint64_t rows)
{
	for (size_t i = 0; i < n; i++)
		if (!step_cut(&steps[i], s->axis, first, rows))
			return false;
	return true;
}

/* Slots begin with the block's first row. */
static void move_to_slot(const struct stream *s, unsigned slot, kops_view *view)
{
	for (unsigned i = 0; i < s->n_values; i++)
		if (s->parts[i].row_bytes > 0 && view->buffer == s->parts[i].buffers[slot])
			view->offset = 0;
}

static size_t block_steps(struct stream *s, uint64_t block, struct step steps[2])
{
	unsigned slot = (unsigned)(block % SLOTS);
	size_t n;

	for (unsigned i = 0; i < s->n_values; i++)
		s->p->values[i].view.buffer = s->parts[i].buffers[slot];
	n = whole_steps(s, steps);
	cut(s, steps, n, first_row(s, block), rows_of(s, block));
	for (size_t i = 0; i < n; i++) {
		for (unsigned v = 0; v < steps[i].op->n_inputs; v++)
			move_to_slot(s, slot, &steps[i].in[v]);
		move_to_slot(s, slot, &steps[i].out);
	}
	return n;
}

/* ---- What can be cut ---- */

/* Returns the bytes of an index if the view, cut at index 1, has consecutive pieces of the file; else 0. */
static uint64_t row_bytes_of(const struct stream *s, const kops_view *cut_at_1, const struct value *v)
{
	uint64_t bytes = 0;

	element_bytes(v->view.dtype, v->view.rank, v->view.shape, &bytes);
	bool is_outermost = bytes % s->extent == 0 && bytes / s->extent == cut_at_1->offset;
	return is_outermost && !v->source.fortran ? cut_at_1->offset : 0;
}

/* An operand that lies otherwise, or that the op needs in two ways, is read whole. */
static void find_input(struct stream *s, const struct step *op, unsigned value)
{
	uint64_t row_bytes = 0;
	bool is_used = false;

	for (unsigned i = 0; i < s->line->op->n_inputs; i++) {
		const struct jobfile_operand *operand = &s->line->operands[i];
		if (!operand->is_given || operand->value != value)
			continue;
		uint64_t of_this = row_bytes_of(s, &op->in[i], &s->p->values[value]);
		row_bytes = is_used && row_bytes != of_this ? 0 : of_this;
		is_used = true;
	}
	s->parts[value].row_bytes = row_bytes;
}

/* Returns false if the op or its result cannot be cut. */
static bool find_parts(struct stream *s)
{
	const struct value *result = &s->p->values[s->n_values - 1];
	struct step steps[2];
	size_t n = whole_steps(s, steps);

	while (s->axis < result->view.rank && result->view.shape[s->axis] == 1)
		s->axis++;
	if (s->axis == result->view.rank || result->view.shape[s->axis] == 0)
		return false;
	s->extent = result->view.shape[s->axis];
	if (!cut(s, steps, n, 1, 1))
		return false;
	for (unsigned i = 0; i + 1 < s->n_values; i++) {
		s->parts[i].is_read = s->p->values[i].source.fd >= 0;
		find_input(s, &steps[n - 1], i);
	}
	if (s->line->has_old && s->parts[s->line->old].row_bytes == 0)
		s->parts[s->line->old].row_bytes =
		    row_bytes_of(s, n > 1 ? &steps[0].in[0] : &steps[0].out, &s->p->values[s->line->old]);
	result_of(s)->row_bytes = row_bytes_of(s, &steps[n - 1].out, result);
	return result_of(s)->row_bytes > 0;
}

static void choose_rows(struct stream *s)
{
	uint64_t whole = 0, row = result_of(s)->row_bytes, block = BLOCK_BYTES;

	s->bytes_to_write = row * s->extent;
	for (unsigned i = 0; i + 1 < s->n_values; i++) {
		if (!s->parts[i].is_read)
			continue;
		s->bytes_to_read += s->parts[i].row_bytes * s->extent;
		row += s->parts[i].row_bytes;
		whole += s->parts[i].row_bytes ? 0 : s->p->values[i].source.bytes;
	}
	if (whole / WHOLE_SHARE > block)
		block = whole / WHOLE_SHARE;
	s->rows = row < block ? block / row : 1;
	if (s->rows > ROWS_TILE)
		s->rows -= s->rows % ROWS_TILE;
	s->blocks = s->extent / s->rows + (s->extent % s->rows > 0);
}

/* Returns true if the old matrix is an operand, too. */
static bool takes_old_twice(const struct jobfile_value *line)
{
	for (unsigned i = 0; line->has_old && i < line->op->n_inputs; i++)
		if (line->operands[i].is_given && line->operands[i].value == line->old)
			return true;
	return false;
}

/* Returns true for one op, of which nothing is needed but a file that appears when it is complete. */
static bool is_simple(const struct pipeline *p)
{
	const struct jobfile *file = p->file;

	if (file->n_values < 2 || file->n_values > VALUES_MAX || p->cli->flags.check || p->n_saves != 1 ||
	    p->saves[0].value != file->n_values - 1 || !sink_is_hidden(p->sinks[0]))
		return false;
	for (size_t i = 0; i < file->n_values; i++)
		if ((file->values[i].op != NULL) != (i + 1 == file->n_values))
			return false;
	return !takes_old_twice(&file->values[file->n_values - 1]);
}

struct stream *stream_new(struct pipeline *p)
{
	struct stream *s = is_simple(p) ? calloc(1, sizeof(*s)) : NULL;

	if (s == NULL)
		return NULL;
	s->p = p;
	s->n_values = (unsigned)p->file->n_values;
	s->line = &p->file->values[s->n_values - 1];
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&s->moved, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (find_parts(s)) {
		choose_rows(s);
		if (s->blocks > 2)
			return s;
	}
	stream_free(s);
	return NULL;
}

/* ---- The threads ---- */

/* Counts a block of a stage; says why if the stage has failed. */
static void note(struct stream *s, uint64_t *stage, const char *why)
{
	pthread_mutex_lock(&s->lock);
	if (why && !s->ends)
		snprintf(s->why, sizeof(s->why), "%s", why);
	s->ends = s->ends || why;
	*stage += why ? 0 : 1;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->lock);
}

/* Blocks until a stage has done more than so many blocks. Returns false if the stream ends before. */
static bool wait_behind(struct stream *s, const uint64_t *stage, uint64_t blocks)
{
	pthread_mutex_lock(&s->lock);
	while (!s->ends && *stage <= blocks)
		pthread_cond_wait(&s->moved, &s->lock);
	bool goes_on = !s->ends;
	pthread_mutex_unlock(&s->lock);
	return goes_on;
}

static int read_rows(struct stream *s, unsigned value, uint64_t block, char *why)
{
	const struct part *part = &s->parts[value];
	uint64_t from = first_row(s, block) * part->row_bytes, bytes = rows_of(s, block) * part->row_bytes;
	char *to = part->data[block % SLOTS];
	int rc = 0;

	for (uint64_t at = 0, n; at < bytes && rc == 0; at += n) {
		n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
		rc = source_read_piece(&s->p->values[value].source, to + at, n, from + at, why);
		s->bytes_read += n;
	}
	return rc;
}

static void *read_blocks(void *stream)
{
	struct stream *s = stream;
	char why[CLI_WHY_BYTES];
	int rc = 0;

	for (uint64_t block = 0; block < s->blocks && rc == 0; block++) {
		if (block >= SLOTS && !wait_behind(s, &s->written, block - SLOTS))
			break;
		double start = cli_now_us();
		for (unsigned i = 0; i + 1 < s->n_values && rc == 0; i++)
			if (s->parts[i].is_read && s->parts[i].row_bytes > 0)
				rc = read_rows(s, i, block, why);
		s->reading_us += cli_now_us() - start;
		note(s, &s->read, rc < 0 ? why : NULL);
	}
	return NULL;
}

static int write_rows(struct stream *s, uint64_t block, char *why)
{
	const struct part *part = result_of(s);
	uint64_t bytes = rows_of(s, block) * part->row_bytes;
	int rc = 0;

	for (uint64_t at = 0, n; at < bytes && rc == 0; at += n) {
		n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
		rc = sink_write_piece(s->p->sinks[0], part->data[block % SLOTS] + at, n, why);
		s->bytes_written += n;
	}
	return rc;
}

static void *write_blocks(void *stream)
{
	struct stream *s = stream;
	char why[CLI_WHY_BYTES];
	int rc = 0;

	for (uint64_t block = 0; block < s->blocks && rc == 0; block++) {
		if (!wait_behind(s, &s->computed, block))
			break;
		double start = cli_now_us();
		rc = write_rows(s, block, why);
		s->writing_us += cli_now_us() - start;
		note(s, &s->written, rc < 0 ? why : NULL);
	}
	return NULL;
}

static void end_threads(struct stream *s)
{
	if (s->has_reader)
		pthread_join(s->reader, NULL);
	if (s->has_writer)
		pthread_join(s->writer, NULL);
	s->has_reader = s->has_writer = false;
}

/* ---- Progress ---- */

static double left_us(double taken_us, double done, double total)
{
	return done > 0 ? taken_us * (total - done) / done : 0;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* The stage that has most to do decides how long all of them take. */
static double stages_left_us(const struct stream *s, double taken_us, const struct wait_share *running)
{
	double computed = (double)s->computed, blocks = (double)s->blocks;
	double read = left_us(taken_us, (double)s->bytes_read, (double)s->bytes_to_read);
	double write = left_us(taken_us, (double)s->bytes_written, (double)s->bytes_to_write);
	double compute = left_us(taken_us, computed + (running ? running->done : 0), blocks);

	if (running)
		compute = larger(0, running->expected_us * (blocks - computed) - running->running_us);
	return larger(read, larger(write, compute));
}

/* running: the job that runs; NULL: unknown. */
static void show(void *stream, const struct wait_share *running)
{
	struct stream *s = stream;
	double now_us = cli_now_us(), taken_us = now_us - s->began_us;
	char line[256];

	if (now_us < s->next_us || !cli_shows_progress(s->p->cli))
		return;
	pthread_mutex_lock(&s->lock);
	double left = stages_left_us(s, taken_us, running);
	pthread_mutex_unlock(&s->lock);
	s->next_us = now_us + INTERVAL_MS * 1e3;
	snprintf(line, sizeof(line), "%.20s, %.16s left, %s to %.120s",
	         show_rate((double)(s->bytes_read + s->bytes_written), taken_us).text, show_us(left).text,
	         s->line->op->name, s->p->saves[0].path);
	progress_show_share(taken_us / (taken_us + left), line);
}

/* Ends the stream when --timeout is over. wait_for_job() sees that only while a job runs. */
static void look_at_clock(struct stream *s)
{
	struct cli *cli = s->p->cli;

	if (!cli->flags.timeout_ms || s->how.until_us <= 0 || cli_now_us() < s->how.until_us)
		return;
	s->is_late = true;
	note(s, &s->computed,
	     "reading, computing and writing took longer than --timeout allows; allow more, or give none to "
	     "wait while kopsd answers");
}

/* Waits like wait_behind(), on the calling thread, which shows how far the stream is. */
static bool watch(struct stream *s, const uint64_t *stage, uint64_t blocks)
{
	bool goes_on = true, is_reached = false;

	while (goes_on && !is_reached) {
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += INTERVAL_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_mutex_lock(&s->lock);
		if (!s->ends && *stage <= blocks)
			pthread_cond_timedwait(&s->moved, &s->lock, &until);
		goes_on = !s->ends;
		is_reached = *stage > blocks;
		pthread_mutex_unlock(&s->lock);
		show(s, NULL);
		if (goes_on && !is_reached)
			look_at_clock(s);
	}
	return goes_on;
}

/* ---- Memory ---- */

static int allocate_slots(struct stream *s, struct part *part)
{
	int rc = CLI_OK;

	for (unsigned slot = 0; slot < SLOTS && rc == CLI_OK; slot++) {
		rc = job_alloc(s->p->cli, s->rows * part->row_bytes, KOPS_SHARED, NULL, &part->buffers[slot]);
		part->data[slot] = rc == CLI_OK ? kops_data(part->buffers[slot]) : NULL;
	}
	return rc;
}

/* The old matrix is read to where its result comes. */
static int allocate(struct stream *s)
{
	unsigned old = job_overwrites(s->p, s->line) ? s->line->old : s->n_values;
	int rc = CLI_OK;

	for (unsigned i = s->n_values; i-- > 0 && rc == CLI_OK;) {
		struct part *part = &s->parts[i];
		if (i == old && part->is_read) {
			memcpy(part->buffers, result_of(s)->buffers, sizeof(part->buffers));
			memcpy(part->data, result_of(s)->data, sizeof(part->data));
		} else if (part->row_bytes > 0 && (part->is_read || i + 1 == s->n_values)) {
			rc = allocate_slots(s, part);
		}
	}
	return rc;
}

static int load_whole(struct stream *s)
{
	for (unsigned i = 0; i + 1 < s->n_values; i++) {
		struct value *v = &s->p->values[i];
		if (!s->parts[i].is_read || s->parts[i].row_bytes > 0)
			continue;
		double start = cli_now_us();
		int rc = source_load(&v->source, s->p->cli, &v->view);
		s->p->read_us += cli_now_us() - start;
		if (rc != CLI_OK)
			return job_fail_at(s->p, s->p->file->values[i].line, rc);
		for (unsigned slot = 0; slot < SLOTS; slot++)
			s->parts[i].buffers[slot] = v->view.buffer;
	}
	return CLI_OK;
}

/* ---- Running ---- */

static int start_threads(struct stream *s)
{
	struct elements like = {.dtype = s->p->values[s->n_values - 1].view.dtype,
	                        .rank = s->p->values[s->n_values - 1].view.rank};

	memcpy(like.shape, s->p->values[s->n_values - 1].view.shape, sizeof(like.shape));
	if (sink_write_header(s->p->sinks[0], &like, s->p->cli->why) < 0)
		return CLI_FAILED;
	s->has_reader = threads_create(&s->reader, NULL, read_blocks, s) == 0;
	s->has_writer = s->has_reader && threads_create(&s->writer, NULL, write_blocks, s) == 0;
	return s->has_writer ? CLI_OK : cli_fail(s->p->cli, CLI_FAILED, "cannot start a thread");
}

static int fail_as_thread(struct stream *s)
{
	return cli_fail(s->p->cli, s->is_late ? CLI_TIMED_OUT : CLI_FAILED, "%s",
	                s->why); /* which names the file */
}

static int send(struct stream *s, uint64_t block)
{
	struct cli *cli = s->p->cli;
	kops_job_options options = {.size = sizeof(options),
	                            .priority = cli->flags.priority,
	                            .device = s->p->device,
	                            .queue = (uint32_t)(block % IN_FLIGHT)};
	struct step steps[2];
	size_t n = block_steps(s, block, steps);
	kops_job **job = &s->jobs[block % SLOTS];

	if (block == 0)
		s->how.until_us = cli_now_us() + cli->flags.timeout_ms * 1e3;
	int rc = job_make(cli, steps, n, &options, job);
	int status = rc == CLI_OK ? kops_submit(*job, NULL, NULL) : 0;
	return status < 0 ? cli_fail_kops(cli, status, kops_error(cli->handle)) : rc;
}

static int finish(struct stream *s, uint64_t block)
{
	struct pipeline *p = s->p;
	kops_job **job = &s->jobs[block % SLOTS];

	show(s, NULL);
	int rc = wait_for_job(p->cli, *job, &s->how);
	if (rc != CLI_OK)
		return rc;
	receipt_add(&p->receipt, kops_job_receipt(*job));
	if (block == 0)
		p->job = *job;
	else
		kops_job_free(*job);
	*job = NULL;
	note(s, &s->computed, NULL);
	return CLI_OK;
}

static int compute(struct stream *s)
{
	int rc = CLI_OK;

	for (uint64_t block = 0; block < s->blocks + IN_FLIGHT - 1 && rc == CLI_OK; block++) {
		if (block < s->blocks)
			rc = watch(s, &s->read, block) ? send(s, block) : fail_as_thread(s);
		if (block >= IN_FLIGHT - 1 && rc == CLI_OK)
			rc = finish(s, block - (IN_FLIGHT - 1));
	}
	return rc;
}

static int run(struct stream *s)
{
	int rc = start_threads(s);

	if (rc == CLI_OK)
		rc = load_whole(s);
	double start = cli_now_us();
	if (rc == CLI_OK)
		rc = compute(s);
	s->p->job_us = cli_now_us() - start;
	s->how.until_us = 0;
	if (rc == CLI_OK && !watch(s, &s->written, s->blocks - 1))
		rc = fail_as_thread(s);
	if (rc != CLI_OK)
		note(s, &s->written, "");
	end_threads(s);
	if (rc == CLI_OK && sink_finish(s->p->sinks[0], s->p->cli->why) < 0)
		rc = job_fail_at(s->p, s->p->saves[0].line, CLI_FAILED);
	return rc;
}

int stream_run(struct stream *s)
{
	int rc = allocate(s);
	struct step steps[2];
	size_t n = whole_steps(s, steps);

	s->p->values[s->n_values - 1].step = steps[n - 1]; /* for the report */
	s->began_us = cli_now_us();
	s->next_us = s->began_us + PATIENCE_US;
	s->how = (struct wait_how){.device = s->p->device, .is_sent = true, .tell = show, .user = s};
	if (rc == CLI_OK)
		rc = run(s);
	progress_erase();
	s->p->read_us += s->reading_us;
	s->p->write_us = s->writing_us;
	return rc;
}

void stream_free(struct stream *s)
{
	if (s == NULL)
		return;
	for (unsigned i = 0; i < SLOTS; i++)
		kops_job_free(s->jobs[i]);
	pthread_cond_destroy(&s->moved);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
