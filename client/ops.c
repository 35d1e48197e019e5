/* ops.c: the ops of a job, packed as they are added. */
#include <stdlib.h>

#include "client.h"

/* A field of proto/kops.proto that is written by hand. */
#define TAG_SUBMIT_OPS MESSAGE_TAG(5, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)

static void *grow(void *array, size_t *cap, size_t need, size_t size)
{
	size_t wanted = *cap * 2 > need ? *cap * 2 : need;
	if (need <= *cap)
		return array;
	void *grown = realloc(array, wanted * size);
	if (grown)
		*cap = wanted;
	return grown;
}

int client_job_reserve(kops_job *job, size_t n)
{
	void *grown = grow(job->bytes, &job->bytes_cap, job->bytes_len + n, 1);
	if (!grown)
		return client_fail(job->k, KOPS_E_NOMEM, "out of memory for a job");
	job->bytes = grown;
	return 0;
}

/* The i-th of an op's n views; the last is the output. */
static int check_view(kops_job *job, const kops_view *views, size_t i, size_t n)
{
	const kops_view *view = &views[i];
	if (!view->buffer)
		return client_fail(
		    job->k, KOPS_E_INVALID,
		    "op %u: view %zu of %zu has no buffer; kops_view.buffer is one that kops_alloc() "
		    "or kops_import() made",
		    job->n_ops, i + 1, n);
	if (view->buffer->k != job->k)
		return client_fail(job->k, KOPS_E_INVALID, "op %u: a view of another handle's buffer",
		                   job->n_ops);
	if (view->buffer->freed)
		return client_fail(job->k, KOPS_E_INVALID, "op %u: a view of a freed buffer", job->n_ops);
	if (view->rank < 1 || view->rank > KOPS_RANK_MAX)
		return client_fail(job->k, KOPS_E_INVALID, "op %u: a view of rank %u; 1 to %d are possible",
		                   job->n_ops, view->rank, KOPS_RANK_MAX);
	if (view->reserved[0] || view->reserved[1])
		return client_fail(
		    job->k, KOPS_E_INVALID,
		    "op %u: a view whose reserved members are not 0; begin with kops_view v = {0}", job->n_ops);
	return 0;
}

static int check_op(kops_job *job, const char *kernel, const kops_view *views, size_t n)
{
	int status = client_may_use(job->k);
	if (status < 0)
		return status;
	if (job->phase != PHASE_NEW)
		return client_fail(job->k, KOPS_E_STATE, "ops cannot be added after kops_submit()");
	if (job->n_ops >= job->k->ops_max)
		return client_fail(job->k, KOPS_E_INVALID, "the job is full: kopsd takes %llu ops in one",
		                   (unsigned long long)job->k->ops_max);
	if (kernel && !client_name_is_valid(kernel))
		return client_fail(job->k, KOPS_E_INVALID,
		                   "a kernel's name is at most 64 printable characters");
	for (size_t i = 0; i < n && status == 0; i++)
		status = check_view(job, views, i, n);
	return status;
}

static void add_operand(kops_job *job, const kops_view *view, bool written)
{
	struct operand *operand = &job->operands[job->n_operands++];
	operand->view = *view;
	operand->op = job->n_ops;
	operand->written = written;
	client_view_extent(operand);
	view->buffer->operands++;
}

static int append_op(kops_job *job, const Kops__V1__Op *op)
{
	size_t size = kops__v1__op__get_packed_size(op);
	const size_t frame = 1 + 3; /* tag, length */
	if (job->bytes_len + frame + size > MESSAGE_BYTES_MAX)
		return client_fail(job->k, KOPS_E_INVALID, "the job is full: its message would pass %d bytes",
		                   MESSAGE_BYTES_MAX);
	int status = client_job_reserve(job, frame + size + CLIENT_TAIL_BYTES);
	if (status < 0)
		return status;
	uint8_t *at = job->bytes + job->bytes_len;
	*at++ = TAG_SUBMIT_OPS;
	at += message_put_varint(at, size);
	at += kops__v1__op__pack(op, at);
	job->bytes_len = (size_t)(at - job->bytes);
	return 0;
}

/*
 * Appends op, whose parameters point to wire[]; it is filled from views[n], of which the last is the output.
 */
static int add_op(kops_job *job, Kops__V1__Op *op, const char *kernel, const kops_view *views,
                  Kops__V1__View *wire, size_t n, bool reads_output)
{
	int status = check_op(job, kernel, views, n);
	if (status < 0)
		return status;
	struct operand *grown =
	    grow(job->operands, &job->operands_cap, job->n_operands + n + 1, sizeof *job->operands);
	if (!grown)
		return client_fail(job->k, KOPS_E_NOMEM, "out of memory for a job");
	job->operands = grown;
	for (size_t i = 0; i < n; i++)
		client_view_encode(&views[i], &wire[i]);
	if (kernel)
		op->kernel = (char *)kernel;
	status = append_op(job, op);
	if (status < 0)
		return status;
	for (size_t i = 0; i < n; i++)
		add_operand(job, &views[i], i == n - 1);
	if (reads_output)
		add_operand(job, &views[n - 1], false);
	job->n_ops++;
	return 0;
}

int kops_job_gemm(kops_job *job, double alpha, kops_view a, kops_view b, double beta, kops_view c,
                  kops_precision precision, const char *kernel)
{
	const kops_view views[] = {a, b, c};
	Kops__V1__View wire[3];
	Kops__V1__Gemm gemm = KOPS__V1__GEMM__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	gemm.a = &wire[0];
	gemm.b = &wire[1];
	gemm.c = &wire[2];
	gemm.alpha = alpha;
	gemm.beta = beta;
	gemm.precision = (Kops__V1__Precision)precision;
	op.params_case = KOPS__V1__OP__PARAMS_GEMM;
	op.gemm = &gemm;
	return add_op(job, &op, kernel, views, wire, 3, beta != 0);
}

int kops_job_softmax(kops_job *job, kops_view x, kops_view y, double scale, bool log, const char *kernel)
{
	const kops_view views[] = {x, y};
	Kops__V1__View wire[2];
	Kops__V1__Softmax softmax = KOPS__V1__SOFTMAX__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	softmax.x = &wire[0];
	softmax.y = &wire[1];
	softmax.scale = scale;
	softmax.log = log;
	op.params_case = KOPS__V1__OP__PARAMS_SOFTMAX;
	op.softmax = &softmax;
	return add_op(job, &op, kernel, views, wire, 2, false);
}

int kops_job_transpose(kops_job *job, kops_view x, kops_view y, const char *kernel)
{
	const kops_view views[] = {x, y};
	Kops__V1__View wire[2];
	Kops__V1__Transpose transpose = KOPS__V1__TRANSPOSE__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	transpose.x = &wire[0];
	transpose.y = &wire[1];
	op.params_case = KOPS__V1__OP__PARAMS_TRANSPOSE;
	op.transpose = &transpose;
	return add_op(job, &op, kernel, views, wire, 2, false);
}

int kops_job_add(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel)
{
	const kops_view views[] = {a, b, y};
	Kops__V1__View wire[3];
	Kops__V1__Add add = KOPS__V1__ADD__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	add.a = &wire[0];
	add.b = &wire[1];
	add.y = &wire[2];
	op.params_case = KOPS__V1__OP__PARAMS_ADD;
	op.add = &add;
	return add_op(job, &op, kernel, views, wire, 3, false);
}

int kops_job_copy(kops_job *job, kops_view x, kops_view y, const char *kernel)
{
	const kops_view views[] = {x, y};
	Kops__V1__View wire[2];
	Kops__V1__Copy copy = KOPS__V1__COPY__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	copy.x = &wire[0];
	copy.y = &wire[1];
	op.params_case = KOPS__V1__OP__PARAMS_COPY;
	op.copy = &copy;
	return add_op(job, &op, kernel, views, wire, 2, false);
}

int kops_job_reduce(kops_job *job, kops_view x, kops_view y, kops_reduction kind, const char *kernel)
{
	const kops_view views[] = {x, y};
	Kops__V1__View wire[2];
	Kops__V1__Reduce reduce = KOPS__V1__REDUCE__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	reduce.x = &wire[0];
	reduce.y = &wire[1];
	reduce.kind = (Kops__V1__Reduction)kind;
	op.params_case = KOPS__V1__OP__PARAMS_REDUCE;
	op.reduce = &reduce;
	return add_op(job, &op, kernel, views, wire, 2, false);
}
