/*
 * sgemm.c: one product of two float matrices, the shortest way.
 *
 *     cc sgemm.c $(pkg-config --cflags --libs kops) -o sgemm
 */
#include <kops.h>
#include <stdio.h>

enum { M = 2, N = 2, K = 3 };

int main(void)
{
	kops *k;
	kops_buffer *a, *b, *c;
	char why[256];

	if (kops_open(&k, NULL, why, sizeof why) < 0)
		return fprintf(stderr, "%s\n", why), 1;
	if (kops_alloc(k, M * K * sizeof(float), KOPS_SHARED, NULL, &a) < 0 ||
	    kops_alloc(k, K * N * sizeof(float), KOPS_SHARED, NULL, &b) < 0 ||
	    kops_alloc(k, M * N * sizeof(float), KOPS_SHARED, NULL, &c) < 0)
		return fprintf(stderr, "%s\n", kops_error(k)), 1;
	for (int i = 0; i < M * K; i++)
		((float *)kops_data(a))[i] = (float)(i + 1); /* 1 2 3; 4 5 6 */
	for (int i = 0; i < K * N; i++)
		((float *)kops_data(b))[i] = (float)(i % 2); /* 0 1; 0 1; 0 1 */

	if (kops_sgemm(k, KOPS_N, KOPS_N, M, N, K, 1, a, K, b, N, 0, c, N) < 0)
		return fprintf(stderr, "%s\n", kops_error(k)), 1;
	const float *out = kops_data(c);
	printf("%g %g\n%g %g\n", out[0], out[1], out[2], out[3]);
	int right = out[0] == 0 && out[1] == 6 && out[2] == 0 && out[3] == 15;
	kops_close(k); /* with its buffers */
	return right ? 0 : 1;
}
