/*
 * make_corpus.c: writes one file for each kind of real message into a folder, for the fuzzer to start from.
 * Usage: make_corpus FOLDER
 */
#include <stdio.h>
#include <stdlib.h>

#include "message.h"

static const char *folder;

static void save(const char *name, const ProtobufCMessage *msg)
{
	uint8_t data[MESSAGE_BYTES_MAX];
	char path[4096];
	size_t len = 0;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = message_pack(msg, data, &len) == 0 ? fopen(path, "wb") : NULL;
	if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0) {
		fprintf(stderr, "make_corpus: cannot write %s\n", path);
		exit(1);
	}
}

#define REQUEST(name, member, MEMBER, ...)                                                                     \
	do {                                                                                                   \
		Kops__V1__Request request = KOPS__V1__REQUEST__INIT;                                           \
		request.id = 1000;                                                                             \
		request.body_case = KOPS__V1__REQUEST__BODY_##MEMBER;                                          \
		request.member = __VA_ARGS__;                                                                  \
		save(name, &request.base);                                                                     \
	} while (0)

#define REPLY(name, member, MEMBER, ...)                                                                       \
	do {                                                                                                   \
		Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;                                                 \
		reply.id = 1000;                                                                               \
		reply.body_case = KOPS__V1__REPLY__BODY_##MEMBER;                                              \
		reply.member = __VA_ARGS__;                                                                    \
		save(name, &reply.base);                                                                       \
	} while (0)

static void simple_requests(void)
{
	Kops__V1__Hello hello = KOPS__V1__HELLO__INIT;
	hello.version_min = hello.version_max = 1;
	hello.client = "caf\xc3\xa9";
	REQUEST("hello", hello, HELLO, &hello);
	Kops__V1__Import import = KOPS__V1__IMPORT__INIT;
	import.buffer = 1, import.bytes = 1 << 20, import.read_only = 1;
	REQUEST("import", import, IMPORT, &import);
	Kops__V1__Alloc alloc = KOPS__V1__ALLOC__INIT;
	alloc.buffer = 2, alloc.bytes = 4096, alloc.kind = KOPS__V1__BUFFER_KIND__RESIDENT,
	alloc.device = "gpu0";
	alloc.lost = 1;
	REQUEST("alloc", alloc, ALLOC, &alloc);
	Kops__V1__Drop drop = KOPS__V1__DROP__INIT;
	drop.buffer = 2;
	REQUEST("drop", drop, DROP, &drop);
	Kops__V1__Cancel cancel = KOPS__V1__CANCEL__INIT;
	cancel.job = 7;
	REQUEST("cancel", cancel, CANCEL, &cancel);
	REQUEST("describe", describe, DESCRIBE, &(Kops__V1__Describe)KOPS__V1__DESCRIBE__INIT);
	REQUEST("stats", stats, STATS, &(Kops__V1__Stats)KOPS__V1__STATS__INIT);
	REQUEST("ping", ping, PING, &(Kops__V1__Ping)KOPS__V1__PING__INIT);
	Kops__V1__ListUsers list_users = KOPS__V1__LIST_USERS__INIT;
	list_users.before = 1000;
	REQUEST("list_users", list_users, LIST_USERS, &list_users);
	Kops__V1__ListSessions list_sessions = KOPS__V1__LIST_SESSIONS__INIT;
	list_sessions.before = 1ull << 40;
	REQUEST("list_sessions", list_sessions, LIST_SESSIONS, &list_sessions);
	Kops__V1__Publish publish = KOPS__V1__PUBLISH__INIT;
	uint64_t extents[] = {3, 4};
	publish.buffer = 3, publish.name = (char *)"model/layer.0", publish.access = KOPS__V1__ACCESS__GROUP;
	publish.group = 100, publish.keep = 1, publish.dtype = KOPS__V1__DTYPE__BF16;
	publish.n_shape = 2, publish.shape = extents;
	REQUEST("publish", publish, PUBLISH, &publish);
	Kops__V1__Attach attach = KOPS__V1__ATTACH__INIT;
	attach.buffer = 4, attach.user = 1000, attach.name = (char *)"model/layer.0";
	REQUEST("attach", attach, ATTACH, &attach);
	Kops__V1__Unpublish unpublish = KOPS__V1__UNPUBLISH__INIT;
	unpublish.user = 1000, unpublish.name = (char *)"model/layer.0";
	REQUEST("unpublish", unpublish, UNPUBLISH, &unpublish);
	Kops__V1__ListBuffers list_buffers = KOPS__V1__LIST_BUFFERS__INIT;
	list_buffers.before = 33;
	REQUEST("list_buffers", list_buffers, LIST_BUFFERS, &list_buffers);
	Kops__V1__Trace trace = KOPS__V1__TRACE__INIT;
	trace.before = 33;
	REQUEST("trace", trace, TRACE, &trace);
}

static void submit_request(void)
{
	uint64_t shape[] = {2, 64, 1ull << 33};
	int64_t strides[] = {-4096, 64, 1};
	Kops__V1__View view = KOPS__V1__VIEW__INIT;
	view.buffer = 3, view.offset = 256, view.dtype = KOPS__V1__DTYPE__F32;
	view.n_shape = view.n_strides = 3, view.shape = shape, view.strides = strides;
	Kops__V1__Gemm gemm = KOPS__V1__GEMM__INIT;
	gemm.a = gemm.b = gemm.c = &view, gemm.alpha = 1, gemm.beta = 0.5;
	gemm.precision = KOPS__V1__PRECISION__PRECISION_TF32;
	Kops__V1__Softmax softmax = KOPS__V1__SOFTMAX__INIT;
	softmax.x = softmax.y = &view, softmax.scale = 1, softmax.log = 1;
	Kops__V1__Transpose transpose = KOPS__V1__TRANSPOSE__INIT;
	transpose.x = transpose.y = &view;
	Kops__V1__Add add = KOPS__V1__ADD__INIT;
	add.a = add.b = add.y = &view;
	Kops__V1__Copy copy = KOPS__V1__COPY__INIT;
	copy.x = copy.y = &view;
	Kops__V1__Reduce reduce = KOPS__V1__REDUCE__INIT;
	reduce.x = reduce.y = &view, reduce.kind = KOPS__V1__REDUCTION__MEAN;
	Kops__V1__Instance__Operand x = KOPS__V1__INSTANCE__OPERAND__INIT, y = x, *operands[] = {&x, &y};
	x.name = "x", x.view = &view, y.name = "y", y.view = &view;
	Kops__V1__Instance__Attribute scale = KOPS__V1__INSTANCE__ATTRIBUTE__INIT, log = scale,
	                              *attributes[] = {&scale, &log};
	scale.name = "scale", scale.value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_NUMBER,
	scale.number = 0.5;
	log.name = "log", log.value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_FLAG, log.flag = 1;
	Kops__V1__Instance instance = KOPS__V1__INSTANCE__INIT;
	instance.op = "softmax", instance.n_operands = 2, instance.operands = operands;
	instance.n_attributes = 2, instance.attributes = attributes;

	Kops__V1__Op op[7];
	Kops__V1__Op *ops[7];
	for (size_t i = 0; i < 7; i++) {
		ops[i] = &op[i];
		kops__v1__op__init(ops[i]);
	}
	op[0].kernel = "cublas";
	op[0].params_case = KOPS__V1__OP__PARAMS_GEMM, op[0].gemm = &gemm;
	op[1].params_case = KOPS__V1__OP__PARAMS_SOFTMAX, op[1].softmax = &softmax;
	op[2].params_case = KOPS__V1__OP__PARAMS_TRANSPOSE, op[2].transpose = &transpose;
	op[3].params_case = KOPS__V1__OP__PARAMS_ADD, op[3].add = &add;
	op[4].params_case = KOPS__V1__OP__PARAMS_COPY, op[4].copy = &copy;
	op[5].params_case = KOPS__V1__OP__PARAMS_REDUCE, op[5].reduce = &reduce;
	op[6].params_case = KOPS__V1__OP__PARAMS_INSTANCE, op[6].instance = &instance;
	Kops__V1__Submit submit = KOPS__V1__SUBMIT__INIT;
	submit.queue = 1, submit.priority = KOPS__V1__PRIORITY__HIGH, submit.device = "cpu";
	submit.deadline_us = 1000, submit.n_ops = 7, submit.ops = ops;
	submit.timed = 1;
	REQUEST("submit", submit, SUBMIT, &submit);
}

static void replies(void)
{
	Kops__V1__Reply failed = KOPS__V1__REPLY__INIT;
	failed.id = 5, failed.status = -13, failed.message = "too much queued", failed.retry_after_us = 1500;
	save("failed", &failed.base);
	Kops__V1__Welcome welcome = KOPS__V1__WELCOME__INIT;
	welcome.version = 1, welcome.daemon = "kopsd " KOPS_VERSION, welcome.max_ops = 64;
	REPLY("welcome", welcome, WELCOME, &welcome);
	Kops__V1__Lent lent = KOPS__V1__LENT__INIT;
	lent.bytes = 4096, lent.device = "gpu0";
	REPLY("lent", lent, LENT, &lent);
	Kops__V1__OpReceipt op = KOPS__V1__OP_RECEIPT__INIT, *ops[] = {&op, &op};
	op.op = "gemm", op.kernel = "openblas", op.why = "first that supports it", op.flops = 1e9;
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	receipt.device = "cpu", receipt.total_us = 12.5, receipt.n_ops = 2, receipt.ops = ops;
	REPLY("receipt", receipt, RECEIPT, &receipt);
	Kops__V1__Device device = KOPS__V1__DEVICE__INIT, *devices[] = {&device};
	device.name = "cpu", device.description = "8 cores", device.memory_bytes = 1ull << 40;
	Kops__V1__Kernel kernel = KOPS__V1__KERNEL__INIT, *kernels[] = {&kernel, &kernel, &kernel};
	kernel.op = "gemm", kernel.name = "openblas", kernel.device = "cpu", kernel.idea = "a library",
	kernel.dtypes = "f32 f64";
	Kops__V1__Description description = KOPS__V1__DESCRIPTION__INIT;
	description.n_devices = 1, description.devices = devices;
	description.n_kernels = 3, description.kernels = kernels;
	REPLY("description", description, DESCRIPTION, &description);
	Kops__V1__DeviceStats stats = KOPS__V1__DEVICE_STATS__INIT, *all[] = {&stats};
	stats.name = "cpu", stats.jobs_done = 300, stats.busy_us = 1e6;
	Kops__V1__Statistics statistics = KOPS__V1__STATISTICS__INIT;
	statistics.uptime_us = 1u << 31, statistics.n_devices = 1, statistics.devices = all;
	REPLY("statistics", statistics, STATISTICS, &statistics);
	Kops__V1__Pong pong = KOPS__V1__PONG__INIT;
	pong.devices = 2;
	REPLY("pong", pong, PONG, &pong);
}

static void lists(void)
{
	Kops__V1__Usage usage = KOPS__V1__USAGE__INIT;
	usage.jobs_done = 300, usage.device_us = 1e6, usage.p50_us = 12.5, usage.p99_us = 99;
	Kops__V1__User user = KOPS__V1__USER__INIT, *all_users[] = {&user, &user};
	user.uid = 1000, user.sessions = 2, user.backlog_us = 1e3, user.usage = &usage;
	Kops__V1__Users users = KOPS__V1__USERS__INIT;
	users.n_users = 2, users.users = all_users, users.next = 1000;
	REPLY("users", users, USERS, &users);
	Kops__V1__RunningJob job = KOPS__V1__RUNNING_JOB__INIT;
	job.device = "cpu", job.op = "gemm", job.kernel = "openblas", job.ops = 3, job.parts = 700;
	job.parts_done = 12, job.running_us = 1e5, job.estimate_us = 38e6;
	Kops__V1__Session session = KOPS__V1__SESSION__INIT, *all_sessions[] = {&session};
	session.session = 7, session.uid = 1000, session.pid = 4711, session.client = "cafÃ©";
	session.running = 1, session.oldest = &job, session.usage = &usage;
	Kops__V1__Sessions sessions = KOPS__V1__SESSIONS__INIT;
	sessions.n_sessions = 1, sessions.sessions = all_sessions;
	REPLY("sessions", sessions, SESSIONS, &sessions);
	Kops__V1__TracedJob traced = KOPS__V1__TRACED_JOB__INIT, *all_jobs[] = {&traced, &traced};
	traced.number = 9, traced.status = -13, traced.device = "gpu0", traced.op = "softmax";
	traced.kernel = "fused", traced.ops = 1, traced.total_us = 20, traced.ring = 1;
	Kops__V1__TracedJobs traced_jobs = KOPS__V1__TRACED_JOBS__INIT;
	traced_jobs.n_jobs = 2, traced_jobs.jobs = all_jobs, traced_jobs.next = 9;
	REPLY("traced_jobs", traced_jobs, TRACED_JOBS, &traced_jobs);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: make_corpus FOLDER\n");
		return 2;
	}
	folder = argv[1];
	simple_requests();
	submit_request();
	replies();
	lists();
	return 0;
}
