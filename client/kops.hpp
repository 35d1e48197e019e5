/*
 * kops.hpp: kops.h for C++17 and later. It is a header only: programs link libkops as C programs do, and kops.h
 * stays the manual. This header adds:
 *
 *   kopsxx::client    a connection
 *   kopsxx::array<T>  a buffer that holds one matrix or tensor of T, row-major; usable as a range of T
 *   kopsxx::buffer    a buffer of bytes, for everything else
 *   kopsxx::job       ops that run together
 *   kopsxx::error     what calls throw: the code, and the sentence for people
 *
 *     kopsxx::client client;
 *     auto a = client.make<float>({m, k}), b = client.make<float>({k, n}), c = client.make<float>({m, n});
 *     std::copy(first, last, a.begin()); …
 *     client.gemm(1, a, b, 0, c);
 *     use(c.data());
 *
 * The namespace is kopsxx because kops is a type of kops.h.
 *
 * Ownership. All of these can be moved but not copied. Arrays, buffers and jobs keep their connection open,
 * whichever dies first. An object that was moved from, or never made, holds nothing: using it throws
 * KOPS_E_STATE. A view (kops_view) owns nothing: keep its array until the job that uses it has ended.
 *
 * Threads, blocking, memory order, restarts and fork() are as in kops.h: one thread at a time uses a client and
 * what belongs to it. Calls block if the C calls of the same name do. Event loops begin with client::start(),
 * and use alloc_start(), import_start() or make_start().
 */
#ifndef KOPS_HPP
#define KOPS_HPP

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<version>)
#include <version>
#endif
#ifdef __cpp_lib_span
#include <span>
#endif

#include <kops.h>

namespace kopsxx
{

class error : public std::runtime_error
{
      public:
	error(int code, const std::string &sentence) : std::runtime_error(sentence), code_(code)
	{
	}
	/* KOPS_E_* */
	int code() const noexcept
	{
		return code_;
	}

      private:
	int code_;
};

/* The wire type of a C++ type. Specialise it for your own half or bfloat16. */
template <class T> struct dtype_of;
template <> struct dtype_of<float> {
	static constexpr kops_dtype value = KOPS_F32;
};
template <> struct dtype_of<double> {
	static constexpr kops_dtype value = KOPS_F64;
};
template <> struct dtype_of<std::int32_t> {
	static constexpr kops_dtype value = KOPS_I32;
};
template <> struct dtype_of<std::complex<float>> {
	static constexpr kops_dtype value = KOPS_C64;
};
template <> struct dtype_of<std::complex<double>> {
	static constexpr kops_dtype value = KOPS_C128;
};
#ifdef __STDCPP_FLOAT16_T__
template <> struct dtype_of<_Float16> {
	static constexpr kops_dtype value = KOPS_F16;
};
#endif
#ifdef __STDCPP_BFLOAT16_T__
template <> struct dtype_of<decltype(0.0bf16)> {
	static constexpr kops_dtype value = KOPS_BF16;
};
#endif

using view = kops_view;

/* The same elements with the last two axes exchanged. */
inline view transposed(view v)
{
	return kops_transposed(v);
}

namespace detail
{

using connection = std::shared_ptr<::kops>;

template <class T> T *held(T *pointer, const char *what)
{
	if (!pointer)
		throw error(KOPS_E_STATE, std::string("this kopsxx::") + what +
		                              " holds nothing: it was moved from, or never made");
	return pointer;
}

inline int check(const connection &k, int rc)
{
	if (rc < 0)
		throw error(rc, kops_error(k.get()));
	return rc;
}

/* Called once, with 0 or KOPS_E_*. It must not throw: std::terminate() ends a program whose callback does. */
using callback = std::function<void(int)>;

inline void call(void *user, int status) noexcept
{
	auto function = std::move(*static_cast<callback *>(user));

	if (function)
		function(status);
}

struct free_buffer {
	connection k; /* outlives the buffer */
	void operator()(kops_buffer *buffer) const
	{
		kops_free(buffer);
	}
};

} // namespace detail

/* For buffer::publish(), with its size set. */
struct publish_options : kops_publish_options {
	publish_options() : kops_publish_options{}
	{
		size = sizeof(kops_publish_options);
	}
};

/* Bytes that jobs read and write. */
class buffer
{
      public:
	buffer() = default;

	/* Returns NULL for RESIDENT memory, and in a child of fork(). */
	void *data() const
	{
		return kops_data(get());
	}
	/*
	 * In a child of fork(): maps the parent's memory, copied on write. Returns NULL if that fails. See
	 * kops_inherit().
	 */
	void *inherit() const
	{
		return kops_inherit(get());
	}
	std::uint64_t size() const
	{
		return kops_size(get());
	}
	/* Lets others attach the buffer by this name; from now on no job may write it: see kops_publish(). */
	void publish(const std::string &name, const kops_publish_options &options = publish_options())
	{
		detail::check(held_.get_deleter().k, kops_publish(get(), name.c_str(), &options));
	}
	/* "": it is not published. */
	std::string published() const
	{
		const char *name = kops_published(get());

		return name ? name : "";
	}
	/* "gpu0"; "" for SHARED memory. */
	const char *device() const
	{
		return kops_buffer_device(get());
	}
	/* The view of an attached buffer that its publisher told; rank 0: none. */
	view attached_view() const
	{
		return kops_attached_view(get());
	}
	/*
	 * Blocks until a started buffer is ready, at most for timeout_ms; negative means no limit. Returns
	 * false if it is still being made. Throws if it could not be made.
	 */
	bool wait(int timeout_ms = -1)
	{
		int rc = kops_buffer_wait(get(), timeout_ms);

		if (rc == KOPS_E_TIMEOUT)
			return false;
		detail::check(held_.get_deleter().k, rc);
		return true;
	}
	/*
	 * Returns true while a job that names the buffer is in flight: the daemon may read and write it. See
	 * kops_buffer_is_busy().
	 */
	bool is_busy() const
	{
		return kops_buffer_is_busy(get());
	}
	/*
	 * Blocks until no job uses the buffer, at most for timeout_ms; negative means no limit. Returns false
	 * if one still does.
	 */
	bool wait_idle(int timeout_ms = -1)
	{
		int rc = kops_buffer_wait_idle(get(), timeout_ms);

		if (rc == KOPS_E_TIMEOUT)
			return false;
		detail::check(held_.get_deleter().k, rc);
		return true;
	}
	/* Why the buffer could not be made; "" otherwise. */
	const char *failure() const
	{
		return kops_buffer_error(get());
	}
	explicit operator bool() const noexcept
	{
		return bool(held_);
	}
	/* For calls of kops.h. */
	kops_buffer *get() const
	{
		return detail::held(held_.get(), "buffer");
	}

	/* rows × cols of dtype, ld elements from row to row (0: cols), from byte `offset`. */
	view matrix(std::uint64_t offset, kops_dtype dtype, std::uint64_t rows, std::uint64_t cols,
	            std::uint64_t ld = 0) const
	{
		return kops_matrix(get(), offset, dtype, rows, cols, ld);
	}

      private:
	friend class client;
	buffer(detail::connection k, kops_buffer *made, std::unique_ptr<detail::callback> done = nullptr)
	    : done_(std::move(done)), held_(made, detail::free_buffer{std::move(k)})
	{
	}

	std::unique_ptr<detail::callback> done_; /* dies after the buffer, which calls it */
	std::unique_ptr<kops_buffer, detail::free_buffer> held_;
};

using extents = std::vector<std::uint64_t>;

/* A tensor of T, row-major and without gaps, zeros at first. */
template <class T> class array
{
      public:
	using value_type = T;
	using iterator = T *;

	array() = default;

	/* Returns NULL for RESIDENT memory, and in a child of fork(). */
	T *data() const
	{
		return static_cast<T *>(bytes_.data());
	}
	/* Number of elements. */
	std::size_t size() const noexcept
	{
		return size_;
	}
	const extents &shape() const noexcept
	{
		return shape_;
	}
	/* The range is empty if this process has no address of the elements. */
	iterator begin() const
	{
		return data();
	}
	iterator end() const
	{
		T *first = data();

		return first ? first + size_ : first;
	}
	T &operator[](std::size_t i) const
	{
		return data()[i];
	}
#ifdef __cpp_lib_span
	std::span<T> span() const
	{
		return {begin(), end()};
	}
#endif

	/* The whole array as an operand. */
	kopsxx::view view() const
	{
		return kops_tensor(bytes_.get(), 0, dtype_of<T>::value, std::uint32_t(shape_.size()),
		                   shape_.data());
	}
	operator kopsxx::view() const
	{
		return view();
	}
	kopsxx::view transposed() const
	{
		return kops_transposed(view());
	}
	const buffer &bytes() const noexcept
	{
		return bytes_;
	}
	/* Does what buffer::wait() does. */
	bool wait(int timeout_ms = -1)
	{
		return bytes_.wait(timeout_ms);
	}

      private:
	friend class client;
	array(buffer bytes, extents shape, std::size_t size)
	    : bytes_(std::move(bytes)), shape_(std::move(shape)), size_(size)
	{
	}

	buffer bytes_;
	extents shape_;
	std::size_t size_ = 0;
};

/*
 * Ops that run in order on one device, sent as one message. Calls that add ops return the job, so they can be
 * chained.
 */
class job
{
      public:
	job() = default;

	/* Made by scripts/gen-ops: members of job */
	job &gemm(double alpha, view a, view b, double beta, view c,
	          kops_precision precision = KOPS_PRECISION_F32, const char *kernel = nullptr)
	{
		return added(kops_job_gemm(get(), alpha, a, b, beta, c, precision, kernel));
	}
	job &softmax(view x, view y, double scale = 1, bool log = false, const char *kernel = nullptr)
	{
		return added(kops_job_softmax(get(), x, y, scale, log, kernel));
	}
	job &transpose(view x, view y, const char *kernel = nullptr)
	{
		return added(kops_job_transpose(get(), x, y, kernel));
	}
	job &add(view a, view b, view y, const char *kernel = nullptr)
	{
		return added(kops_job_add(get(), a, b, y, kernel));
	}
	job &copy(view x, view y, const char *kernel = nullptr)
	{
		return added(kops_job_copy(get(), x, y, kernel));
	}
	job &reduce(view x, view y, kops_reduction kind = KOPS_SUM, const char *kernel = nullptr)
	{
		return added(kops_job_reduce(get(), x, y, kind, kernel));
	}
	job &multiply(view a, view b, view y, const char *kernel = nullptr)
	{
		return added(kops_job_multiply(get(), a, b, y, kernel));
	}
	job &layer_norm(view x, view weight, view bias, view y, double eps = 1e-05,
	                const char *kernel = nullptr)
	{
		return added(kops_job_layer_norm(get(), x, weight, bias, y, eps, kernel));
	}
	job &gather(view x, view indices, view y, const char *kernel = nullptr)
	{
		return added(kops_job_gather(get(), x, indices, y, kernel));
	}
	job &rms_norm(view x, view weight, view y, double eps = 1e-05, const char *kernel = nullptr)
	{
		return added(kops_job_rms_norm(get(), x, weight, y, eps, kernel));
	}
	job &subtract(view a, view b, view y, const char *kernel = nullptr)
	{
		return added(kops_job_subtract(get(), a, b, y, kernel));
	}
	job &unary(view x, view y, kops_unary_function function = KOPS_UNARY_FUNCTION_NONE, double scale = 1,
	           double low = -INFINITY, double high = INFINITY, const char *kernel = nullptr)
	{
		return added(kops_job_unary(get(), x, y, function, scale, low, high, kernel));
	}
	job &attention(view q, view k, view v, view mask, view o,
	               kops_attention_causal causal = KOPS_ATTENTION_CAUSAL_NONE, const char *kernel = nullptr)
	{
		return added(kops_job_attention(get(), q, k, v, mask, o, causal, kernel));
	}
	job &arg_reduce(view x, view y, kops_arg_reduce_kind kind = KOPS_ARG_REDUCE_KIND_MAX,
	                const char *kernel = nullptr)
	{
		return added(kops_job_arg_reduce(get(), x, y, kind, kernel));
	}
	job &top_k(view x, view values, view indices, std::uint32_t k = 1,
	           kops_top_k_kind kind = KOPS_TOP_K_KIND_LARGEST,
	           kops_top_k_order order = KOPS_TOP_K_ORDER_VALUE, const char *kernel = nullptr)
	{
		return added(kops_job_top_k(get(), x, values, indices, k, kind, order, kernel));
	}
	job &search(view queries, view base, view values, view indices, std::uint32_t k = 10,
	            kops_search_metric metric = KOPS_SEARCH_METRIC_IP, const char *kernel = nullptr)
	{
		return added(kops_job_search(get(), queries, base, values, indices, k, metric, kernel));
	}
	job &cholesky(view a, view factor, view infos, bool upper = false, bool keep = false,
	              const char *kernel = nullptr)
	{
		return added(kops_job_cholesky(get(), a, factor, infos, upper, keep, kernel));
	}
	job &triangular_solve(view a, view b, view x, bool upper = false, bool unit = false, bool right = false,
	                      const char *kernel = nullptr)
	{
		return added(kops_job_triangular_solve(get(), a, b, x, upper, unit, right, kernel));
	}
	job &lu(view a, view lu, view pivots, view infos, const char *kernel = nullptr)
	{
		return added(kops_job_lu(get(), a, lu, pivots, infos, kernel));
	}
	/* End of members of job */

	/* Has the daemon check and plan the job now, so that its first run is as fast as later ones. Blocks. */
	void prepare()
	{
		added(kops_job_prepare(get()));
	}
	/*
	 * Submits the job and blocks until its end. After the client's timeout, or timeout_ms, the job is
	 * cancelled.
	 */
	void run()
	{
		ended(kops_run(get()));
	}
	void run_for(int timeout_ms)
	{
		ended(kops_run_for(get(), timeout_ms));
	}
	void submit()
	{
		added(kops_submit(get(), nullptr, nullptr));
	}
	/*
	 * done(status) is called once, from client::process() or a blocking call; status is 0 or KOPS_E_*. It
	 * must not throw: std::terminate() ends a program whose callback does. It may destroy this job.
	 */
	void submit(std::function<void(int)> done)
	{
		auto kept = std::make_unique<detail::callback>(std::move(done));

		added(kops_submit(
		    get(), [](kops_job *, int status, void *user) noexcept { detail::call(user, status); },
		    kept.get()));
		done_ = std::move(kept);
	}
	/*
	 * Blocks until the job is done, at most for timeout_ms; negative means no limit. Returns false if it is
	 * still out. Throws if the job failed.
	 */
	bool wait(int timeout_ms = -1)
	{
		int rc = kops_wait(get(), timeout_ms);

		if (rc == KOPS_E_TIMEOUT && kops_job_is_out(get()))
			return false;
		ended(rc);
		return true;
	}
	bool is_out() const
	{
		return kops_job_is_out(get());
	}
	/* Asks the daemon to cancel the job; a running one stops at the next point where it can be paused. */
	void cancel()
	{
		added(kops_cancel(get()));
	}

	/*
	 * The receipt of the last run; throws KOPS_E_STATE unless it succeeded. Valid until the job is
	 * submitted again.
	 */
	const kops_receipt &receipt() const
	{
		const kops_receipt *receipt = kops_job_receipt(get());

		if (!receipt)
			throw error(KOPS_E_STATE, "there is no receipt: the job has not succeeded");
		return *receipt;
	}
	/* After KOPS_E_BUSY: in how many microseconds to submit the job again. */
	std::uint64_t retry_after_us() const
	{
		return kops_job_retry_after_us(get());
	}
	explicit operator bool() const noexcept
	{
		return bool(held_);
	}
	kops_job *get() const
	{
		return detail::held(held_.get(), "job");
	}

      private:
	friend class client;
	struct free_job {
		detail::connection k;
		void operator()(kops_job *made) const
		{
			kops_job_free(made);
		}
	};

	job(detail::connection k, kops_job *made) : held_(made, free_job{std::move(k)})
	{
	}
	job &added(int rc)
	{
		detail::check(held_.get_deleter().k, rc);
		return *this;
	}
	void ended(int rc)
	{
		const char *sentence = rc < 0 ? kops_job_error(get()) : "";

		if (rc < 0)
			throw error(rc, *sentence ? sentence : kops_error(held_.get_deleter().k.get()));
	}

	std::unique_ptr<detail::callback> done_; /* dies after the job, which calls it */
	std::unique_ptr<kops_job, free_job> held_;
};

/* Where and when a job runs: kops_job_options with its size. */
struct job_options : kops_job_options {
	job_options() : kops_job_options{}
	{
		size = sizeof(kops_job_options);
	}
};

/* How to connect: kops_options with its size. */
struct options : kops_options {
	options() : kops_options{}
	{
		size = sizeof(kops_options);
	}
};

class client
{
      public:
	/* Connects. Blocks, but fails at once when nothing listens at the socket. */
	explicit client(const kops_options &options = kopsxx::options()) : client(kops_open, options)
	{
	}
	client(client &&) noexcept = default;
	client &operator=(client &&) noexcept = default;
	/* Connects without blocking: see kops_open_start(). */
	static client start(const kops_options &options = kopsxx::options())
	{
		return client(kops_open_start, options);
	}

	/* Allocates KOPS_SHARED memory, or KOPS_RESIDENT memory of a device (nullptr: the first). */
	buffer alloc(std::uint64_t bytes, unsigned flags = KOPS_SHARED, const char *device = nullptr)
	{
		kops_buffer *made = nullptr;

		detail::check(connection(), kops_alloc(get(), bytes, flags, device, &made));
		return buffer(k_, made);
	}
	/* Shares a sealed memfd of yours. */
	buffer import(int fd, std::uint64_t bytes, unsigned flags = KOPS_SHARED)
	{
		kops_buffer *made = nullptr;

		detail::check(connection(), kops_import(get(), fd, bytes, flags, &made));
		return buffer(k_, made);
	}
	/* Makes a buffer that the user has published one of this connection's, for reading only: see
	 * kops_attach(). */
	buffer attach(std::uint32_t uid, const std::string &name)
	{
		kops_buffer *made = nullptr;

		detail::check(connection(), kops_attach(get(), uid, name.c_str(), &made));
		return buffer(k_, made);
	}
	void unpublish(std::uint32_t uid, const std::string &name)
	{
		detail::check(connection(), kops_unpublish(get(), uid, name.c_str()));
	}
	/*
	 * These do not block: see kops_alloc_start(). done(status) is called once, as in job::submit(), and may
	 * be empty. It is not called if the buffer dies before.
	 */
	buffer alloc_start(std::uint64_t bytes, std::function<void(int)> done, unsigned flags = KOPS_SHARED,
	                   const char *device = nullptr)
	{
		auto kept = std::make_unique<detail::callback>(std::move(done));
		kops_buffer *made = nullptr;

		detail::check(connection(),
		              kops_alloc_start(get(), bytes, flags, device, buffer_done, kept.get(), &made));
		return buffer(k_, made, std::move(kept));
	}
	buffer import_start(int fd, std::uint64_t bytes, std::function<void(int)> done,
	                    unsigned flags = KOPS_SHARED)
	{
		auto kept = std::make_unique<detail::callback>(std::move(done));
		kops_buffer *made = nullptr;

		detail::check(connection(),
		              kops_import_start(get(), fd, bytes, flags, buffer_done, kept.get(), &made));
		return buffer(k_, made, std::move(kept));
	}
	template <class T>
	array<T> make_start(extents shape, std::function<void(int)> done, unsigned flags = KOPS_SHARED,
	                    const char *device = nullptr)
	{
		std::size_t elements = elements_of(shape, sizeof(T));

		return array<T>(alloc_start(elements * sizeof(T), std::move(done), flags, device),
		                std::move(shape), elements);
	}

	/* Makes an array of 1 to KOPS_RANK_MAX axes, each of one element or more. */
	template <class T>
	array<T> make(extents shape, unsigned flags = KOPS_SHARED, const char *device = nullptr)
	{
		std::size_t elements = elements_of(shape, sizeof(T));

		return array<T>(alloc(elements * sizeof(T), flags, device), std::move(shape), elements);
	}
	template <class T> array<T> make_resident(extents shape, const char *device = nullptr)
	{
		return make<T>(std::move(shape), KOPS_RESIDENT, device);
	}

	job make_job(const kops_job_options &options = job_options())
	{
		kops_job *made = nullptr;

		detail::check(connection(), kops_job_new(get(), &options, &made));
		return job(k_, made);
	}

	/*
	 * Each runs one op and blocks until it is done. To repeat an op keep a job: its runs cost less, and
	 * have receipts.
	 */
	void gemm(double alpha, view a, view b, double beta, view c,
	          kops_precision precision = KOPS_PRECISION_F32)
	{
		make_job().gemm(alpha, a, b, beta, c, precision).run();
	}
	/* Made by scripts/gen-ops: members of client */
	void softmax(view x, view y, double scale = 1)
	{
		detail::check(connection(), kops_softmax(get(), x, y, scale));
	}
	void transpose(view x, view y)
	{
		detail::check(connection(), kops_transpose(get(), x, y));
	}
	void add(view a, view b, view y)
	{
		detail::check(connection(), kops_add(get(), a, b, y));
	}
	void copy(view x, view y)
	{
		detail::check(connection(), kops_copy(get(), x, y));
	}
	void reduce(view x, view y, kops_reduction kind = KOPS_SUM)
	{
		detail::check(connection(), kops_reduce(get(), x, y, kind));
	}
	void multiply(view a, view b, view y)
	{
		detail::check(connection(), kops_multiply(get(), a, b, y));
	}
	void layer_norm(view x, view weight, view bias, view y, double eps = 1e-05)
	{
		detail::check(connection(), kops_layer_norm(get(), x, weight, bias, y, eps));
	}
	void gather(view x, view indices, view y)
	{
		detail::check(connection(), kops_gather(get(), x, indices, y));
	}
	void rms_norm(view x, view weight, view y, double eps = 1e-05)
	{
		detail::check(connection(), kops_rms_norm(get(), x, weight, y, eps));
	}
	void subtract(view a, view b, view y)
	{
		detail::check(connection(), kops_subtract(get(), a, b, y));
	}
	void unary(view x, view y, kops_unary_function function = KOPS_UNARY_FUNCTION_NONE, double scale = 1,
	           double low = -INFINITY, double high = INFINITY)
	{
		detail::check(connection(), kops_unary(get(), x, y, function, scale, low, high));
	}
	void attention(view q, view k, view v, view mask, view o,
	               kops_attention_causal causal = KOPS_ATTENTION_CAUSAL_NONE)
	{
		detail::check(connection(), kops_attention(get(), q, k, v, mask, o, causal));
	}
	void arg_reduce(view x, view y, kops_arg_reduce_kind kind = KOPS_ARG_REDUCE_KIND_MAX)
	{
		detail::check(connection(), kops_arg_reduce(get(), x, y, kind));
	}
	void top_k(view x, view values, view indices, std::uint32_t k = 1,
	           kops_top_k_kind kind = KOPS_TOP_K_KIND_LARGEST,
	           kops_top_k_order order = KOPS_TOP_K_ORDER_VALUE)
	{
		detail::check(connection(), kops_top_k(get(), x, values, indices, k, kind, order));
	}
	void search(view queries, view base, view values, view indices, std::uint32_t k = 10,
	            kops_search_metric metric = KOPS_SEARCH_METRIC_IP)
	{
		detail::check(connection(), kops_search(get(), queries, base, values, indices, k, metric));
	}
	void cholesky(view a, view factor, view infos, bool upper = false, bool keep = false)
	{
		detail::check(connection(), kops_cholesky(get(), a, factor, infos, upper, keep));
	}
	void triangular_solve(view a, view b, view x, bool upper = false, bool unit = false, bool right = false)
	{
		detail::check(connection(), kops_triangular_solve(get(), a, b, x, upper, unit, right));
	}
	void lu(view a, view lu, view pivots, view infos)
	{
		detail::check(connection(), kops_lu(get(), a, lu, pivots, infos));
	}
	/* End of members of client */

	void ping()
	{
		detail::check(connection(), kops_ping(get()));
	}
	using info = std::unique_ptr<kops_info, void (*)(kops_info *)>;
	/* Asks for devices and kernels: kops_info_device(info.get(), i). Blocks. */
	info query()
	{
		kops_info *made = nullptr;

		detail::check(connection(), kops_query(get(), &made));
		return info(made, kops_info_free);
	}
	using list = std::unique_ptr<kops_list, void (*)(kops_list *)>;
	/* Items: kops_list_user(list.get(), i), kops_list_session(), kops_list_job(), kops_list_buffer(). */
	list users()
	{
		kops_list *made = nullptr;

		detail::check(connection(), kops_list_users(get(), &made));
		return list(made, kops_list_free);
	}
	list sessions()
	{
		kops_list *made = nullptr;

		detail::check(connection(), kops_list_sessions(get(), &made));
		return list(made, kops_list_free);
	}
	/* See kops_list_jobs(). */
	list trace(std::uint64_t after = 0, std::size_t max = 0)
	{
		kops_list *made = nullptr;

		detail::check(connection(), kops_list_jobs(get(), after, max, &made));
		return list(made, kops_list_free);
	}

	list buffers()
	{
		kops_list *made = nullptr;

		detail::check(connection(), kops_list_buffers(get(), &made));
		return list(made, kops_list_free);
	}

	/* For event loops: see kops.h. */
	int fd() const
	{
		return kops_fd(get());
	}
	short events() const
	{
		return kops_events(get());
	}
	int timeout() const
	{
		return kops_timeout(get());
	}
	/* Returns how many jobs ended and buffers were made. */
	int process()
	{
		return detail::check(connection(), kops_process(get()));
	}

	::kops *get() const
	{
		return detail::held(k_.get(), "client");
	}

      private:
	client(decltype(kops_open) *open, const kops_options &options)
	{
		::kops *made = nullptr;
		char why[256] = "";
		int rc = open(&made, &options, why, sizeof(why));

		if (rc < 0)
			throw error(rc, why);
		k_.reset(made, kops_close);
	}
	static void buffer_done(kops_buffer *, int status, void *user) noexcept
	{
		detail::call(user, status);
	}
	const detail::connection &connection() const
	{
		detail::held(k_.get(), "client");
		return k_;
	}
	static std::size_t elements_of(const extents &shape, std::size_t size)
	{
		std::size_t elements = 1, most = SIZE_MAX / size;

		if (shape.empty() || shape.size() > KOPS_RANK_MAX)
			throw error(KOPS_E_INVALID, "an array has 1 to " + std::to_string(KOPS_RANK_MAX) +
			                                " axes, not " + std::to_string(shape.size()));
		for (std::uint64_t extent : shape) {
			if (extent == 0)
				throw error(KOPS_E_INVALID, "an array has no axis without elements");
			if (extent > most / elements)
				throw error(KOPS_E_NOMEM,
				            "an array of this shape is larger than memory can be");
			elements *= extent;
		}
		return elements;
	}

	detail::connection k_;
};

} // namespace kopsxx

#endif
