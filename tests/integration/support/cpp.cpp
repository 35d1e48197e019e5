/*
 * cpp.cpp: kops.hpp against a real kopsd at $KOPS_SOCKET, compiled as C++17 and as C++20. Prints what is wrong;
 * exit status 0: nothing.
 */
#include <kops.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

using kopsxx::array;
using kopsxx::client;

static int wrong;

#define EXPECT(condition)                                                                                      \
	do                                                                                                     \
		if (!(condition)) {                                                                            \
			std::printf("line %d: not %s\n", __LINE__, #condition);                                \
			wrong++;                                                                               \
		}                                                                                              \
	while (0)

/* The code that a call throws, its sentence not empty; 0: it throws nothing. */
template <class CALL> static int thrown(CALL call)
{
	try {
		call();
	} catch (const kopsxx::error &e) {
		EXPECT(std::strlen(e.what()) > 10);
		return e.code();
	}
	return 0;
}

static_assert(!std::is_copy_constructible_v<array<float>> && std::is_nothrow_move_constructible_v<array<float>>,
              "");
static_assert(!std::is_copy_constructible_v<kopsxx::client> &&
                  std::is_nothrow_move_constructible_v<kopsxx::client>,
              "");
static_assert(!std::is_copy_constructible_v<kopsxx::job> && std::is_nothrow_move_constructible_v<kopsxx::job>,
              "");

/* Freed ones count until their memory has been given back. */
static bool has_buffers(client &k, std::uint64_t n)
{
	for (int i = 0; i < 5000 && k.query()->buffers != n; i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	return k.query()->buffers == n;
}

static void products_are_right(client &k)
{
	const std::size_t m = 5, n = 7, depth = 9;
	auto a = k.make<double>({m, depth}), b = k.make<double>({n, depth}), c = k.make<double>({m, n});

	std::iota(a.begin(), a.end(), -20.0);
	std::iota(b.begin(), b.end(), 3.0);
	std::fill(c.begin(), c.end(), NAN);
	k.gemm(2, a, b.transposed(), 0, c);
	for (std::size_t i = 0; i < m; i++)
		for (std::size_t j = 0; j < n; j++) {
			double sum = 0;
			for (std::size_t l = 0; l < depth; l++)
				sum += 2 * a[i * depth + l] * b[j * depth + l];
			EXPECT(c[i * n + j] == sum);
		}
}

static void ops_are_right(client &k)
{
	auto x = k.make<float>({2, 3}), y = k.make<float>({2, 3}), t = k.make<float>({3, 2}),
	     sums = k.make<float>({2});

	std::iota(x.begin(), x.end(), 1.0f);
	k.transpose(x, t);
	EXPECT(t[0] == 1 && t[1] == 4 && t[2] == 2 && t[5] == 6);
	k.add(x, x, y);
	EXPECT(std::equal(x.begin(), x.end(), y.begin(), [](float one, float two) { return two == 2 * one; }));
	k.reduce(x, sums, KOPS_MAX);
	EXPECT(sums[0] == 3 && sums[1] == 6);
	k.softmax(x, y);
	k.reduce(y, sums);
	EXPECT(std::fabs(sums[0] - 1) < 1e-6f && std::fabs(sums[1] - 1) < 1e-6f);
	k.copy(x, y);
	EXPECT(std::equal(x.begin(), x.end(), y.begin()));
#ifdef __cpp_lib_span
	EXPECT(x.span().size() == 6 && x.span()[5] == 6);
#endif
}

static void resident_arrays_have_no_address(client &k)
{
	auto x = k.make<float>({4, 4}), y = k.make<float>({4, 4}), there = k.make_resident<float>({4, 4});

	std::iota(x.begin(), x.end(), 0.0f);
	EXPECT(there.data() == nullptr && there.begin() == there.end());
	k.make_job().copy(x, there).add(there, there, there).copy(there, y).run();
	EXPECT(y[15] == 30);
}

static void memory_comes_back()
{
	client k;
	EXPECT(has_buffers(k, 0));
	{
		auto a = k.make<float>({100});
		array<float> b = std::move(a), c;

		c = std::move(b);
		EXPECT(has_buffers(k, 1));
		c = k.make<float>({10});
		EXPECT(has_buffers(k, 1));
		EXPECT(c.size() == 10);
	}
	EXPECT(has_buffers(k, 0));
}

static void what_was_moved_from_holds_nothing(client &k)
{
	auto a = k.make<float>({4});
	auto job = k.make_job();
	auto b = std::move(a);
	auto other = std::move(job);
	client none = client(), moved = std::move(none);

	EXPECT(thrown([&] { a.data(); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { k.add(a, b, b); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { job.add(b, b, b); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { job.run(); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { none.ping(); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { kopsxx::job().wait(); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { kopsxx::buffer().size(); }) == KOPS_E_STATE);
	EXPECT(!bool(job) && bool(other));
	moved.ping();
}

/* Handles die in any order. */
static void arrays_keep_their_connection()
{
	array<float> a;
	kopsxx::job job;
	{
		client k;

		a = k.make<float>({3});
		job = k.make_job();
		job.add(a, a, a);
	}
	a[0] = 21;
	job.run();
	EXPECT(a[0] == 42);
}

static void mistakes_throw(client &k)
{
	auto a = k.make<float>({2, 3}), b = k.make<float>({2, 3});

	EXPECT(thrown([&] { k.gemm(1, a, b, 0, a); }) == KOPS_E_SHAPE);
	EXPECT(thrown([&] { k.transpose(a, b); }) == KOPS_E_SHAPE);
	EXPECT(thrown([&] { k.make_job().run(); }) == KOPS_E_INVALID);
	EXPECT(thrown([&] { k.make_job().receipt(); }) == KOPS_E_STATE);
	EXPECT(thrown([&] { k.make<float>({}); }) == KOPS_E_INVALID);
	EXPECT(thrown([&] { k.make<float>({1, 1, 1, 1, 1}); }) == KOPS_E_INVALID);
	EXPECT(thrown([&] { k.make<float>({4, 0}); }) == KOPS_E_INVALID);
	EXPECT(thrown([&] { k.make<float>({1ull << 40, 1ull << 40}); }) == KOPS_E_NOMEM);
	EXPECT(thrown([&] { k.alloc(16, KOPS_RESIDENT, "gpu99"); }) == KOPS_E_DEVICE);
	EXPECT(thrown([&] {
		       kopsxx::options options;
		       options.socket = "/nonexistent/kopsd.sock";
		       client never(options);
	       }) == KOPS_E_CONNECT);
	k.ping();
}

/* Once round an event loop. */
static void turn(client &k)
{
	struct pollfd poll_fd = {k.fd(), k.events(), 0};

	poll(&poll_fd, 1, k.timeout());
	k.process();
}

static void callbacks_come_once(client &k)
{
	auto a = k.make<float>({8});
	int calls = 0, status = 1;

	std::fill(a.begin(), a.end(), 1.0f);
	for (int round = 0; round < 5; round++) {
		auto job = k.make_job();

		job.add(a, a, a);
		job.submit([&](int rc) {
			calls++;
			status = rc;
			job = kopsxx::job(); /* may destroy the job that calls */
		});
		while (bool(job))
			turn(k);
		EXPECT(status == 0);
	}
	EXPECT(calls == 5 && a[7] == 32);
}

static void started_ones_need_no_waiting()
{
	client k = client::start();
	int calls = 0, made = 1, refused = 1;
	auto note = [&](int &status) {
		return [&](int rc) {
			calls++;
			status = rc;
		};
	};
	auto a = k.make_start<float>({8}, note(made));
	auto there = k.make_start<float>({8}, nullptr, KOPS_RESIDENT);
	auto missing = k.alloc_start(16, note(refused), KOPS_RESIDENT, "gpu99");
	auto job = k.make_job();

	EXPECT(a.data() == nullptr && (!a.wait(0) || a.data() != nullptr)); /* the daemon may be quick */
	job.add(there, there, a).submit();                                  /* runs when they are there */
	{
		auto freed = k.make_start<float>({8}, [&](int) { calls += 100; });
	}
	while (job.is_out() || calls < 2)
		turn(k);
	EXPECT(calls == 2 && made == 0 && refused == KOPS_E_DEVICE);
	EXPECT(std::strlen(missing.failure()) > 10);
	EXPECT(thrown([&] { missing.wait(); }) == KOPS_E_DEVICE);
	EXPECT(a.wait() && a[7] == 0);
	EXPECT(thrown([&] { k.import_start(-1, 8, nullptr); }) == KOPS_E_FD);
}

static void a_job_repeats(client &k)
{
	auto a = k.make<float>({16}), b = k.make<float>({16});
	auto job = k.make_job();

	job.add(a, b, b).prepare();
	std::fill(a.begin(), a.end(), 1.0f);
	for (int i = 0; i < 20; i++)
		job.run();
	EXPECT(b[15] == 20);
	EXPECT(job.receipt().n_ops == 1 && std::strcmp(kops_receipt_op(&job.receipt(), 0)->op, "add") == 0);
	job.submit();
	while (!job.wait(1))
		;
	EXPECT(b[0] == 21 && !job.is_out());
}

/* Of seconds of work, which is cancelled. */
static void a_job_that_takes_too_long(client &k)
{
	auto x = k.alloc(1 << 16), y = k.alloc(1 << 16);
	auto job = k.make_job();
	auto one = [](const kopsxx::buffer &b) { return kops_matrix(b.get(), 0, KOPS_F32, 1, 1, 0); };
	kops_view terms = one(x);

	terms.shape[1] = std::uint64_t(1) << 34;
	terms.strides[1] = 0;
	kops_job_reduce(job.get(), terms, one(y), KOPS_SUM, nullptr);
	EXPECT(thrown([&] { job.run_for(1); }) == KOPS_E_TIMEOUT);
	EXPECT(x.is_busy() && y.is_busy());
	EXPECT(y.wait_idle() && !y.is_busy() && !job.is_out());
	EXPECT(thrown([&] { job.wait(); }) == KOPS_E_CANCELLED);
}

static void a_child_reads_what_its_parent_has(client &k)
{
	auto buffer = k.alloc(64);
	char *text = static_cast<char *>(buffer.data());
	int status = -1;

	std::strcpy(text, "the parent's");
	EXPECT(!buffer.inherit());
	pid_t child = fork();
	if (child == 0) {
		bool right = buffer.inherit() == text && std::strcmp(text, "the parent's") == 0;
		std::strcpy(text, "the child's");
		_exit(right ? 0 : 1);
	}
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	EXPECT(std::strcmp(text, "the parent's") == 0);
}

static void lists_show_this_client(client &k)
{
	kopsxx::publish_options shared;
	auto published = k.alloc(64);

	shared.access = KOPS_EVERYBODY;
	published.publish("cpp/buffer", shared);
	auto attached = k.attach(geteuid(), "cpp/buffer");
	EXPECT(published.published() == "cpp/buffer" && attached.size() == 64 &&
	       attached.attached_view().rank == 0);
	EXPECT(kops_list_count(k.buffers().get()) == 1);
	k.unpublish(geteuid(), "cpp/buffer");
	EXPECT(published.published().empty());
	auto trace = k.trace(0, 1);
	auto users = k.users(), sessions = k.sessions();
	const kops_traced_job *last = kops_list_job(trace.get(), 0);
	const kops_session_info *own = kops_list_session(sessions.get(), 0);

	EXPECT(kops_list_count(trace.get()) == 1 && last->status == 0);
	EXPECT(own->session == last->session && own->usage->jobs_done > 0);
	EXPECT(kops_list_user(users.get(), kops_list_count(users.get()) - 1)->uid == own->uid);
}

int main()
{
	client k;

	products_are_right(k);
	lists_show_this_client(k);
	ops_are_right(k);
	resident_arrays_have_no_address(k);
	memory_comes_back();
	what_was_moved_from_holds_nothing(k);
	arrays_keep_their_connection();
	mistakes_throw(k);
	callbacks_come_once(k);
	started_ones_need_no_waiting();
	a_job_repeats(k);
	a_job_that_takes_too_long(k);
	a_child_reads_what_its_parent_has(k);
	return wrong != 0;
}
