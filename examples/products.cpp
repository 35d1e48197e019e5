/*
 * products.cpp: attention scores in C++: S = softmax(Q·Kᵀ / √d) for several heads at once, as one job that is
 * run again and again.
 *
 *     c++ -std=c++17 products.cpp $(pkg-config --cflags --libs kops) -o products
 */
#include <kops.hpp>

#include <cmath>
#include <cstdio>

int main()
{
	constexpr unsigned heads = 8, length = 64, depth = 32;

	try {
		kopsxx::client client;
		auto q = client.make<float>({heads, length, depth}),
		     k = client.make<float>({heads, length, depth});
		auto s = client.make<float>({heads, length, length});
		auto job = client.make_job();

		job.gemm(1 / std::sqrt(double(depth)), q, k.transposed(), 0, s).softmax(s, s);
		for (int step = 0; step < 3; step++) {
			for (std::size_t i = 0; i < q.size(); i++) {
				q[i] = std::sin(float(i + step));
				k[i] = std::cos(float(i * step));
			}
			job.run();
		}
		double sum = 0;
		for (float p : s)
			sum += p;
		std::printf("%u rows of probabilities, which add up to %.3f; by %s on %s\n", heads * length,
		            sum, kops_receipt_op(&job.receipt(), 0)->kernel, job.receipt().device);
		return std::fabs(sum - heads * length) < 1e-2 ? 0 : 1;
	} catch (const kopsxx::error &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
}
