/*
 * Computes short rows 16 at a time, each in a lane of a vector: sums, divisions and roots of all rows take as
 * long as those of one. A single row takes 80 ns, mostly for divisions that wait for each other.
 */
#include "layer_norm/cpu_lanes.h"

#include <math.h>

#include "common/cpu.h"
#include "layer_norm/layer_norm.h"

#define LANES     LAYER_NORM_LANES
#define EACH_LANE _Pragma("omp simd") for (unsigned l = 0; l < LANES; l++)

CPU_CLONES uint32_t layer_norm_of_lanes(struct layer_norm_lanes *rows, int64_t n, bool is_rms,
                                        const float *weight, const float *bias, double eps)
{
	float near[LANES] = {0}, apart[LANES] = {0}, squares[LANES] = {0}, inverse[LANES];
	const float count = (float)n, addend = (float)eps;
	uint32_t bad = 0;

	for (int64_t i = 0; i < n && !is_rms; i++)
		EACH_LANE near[l] += rows->at[i][l];
	EACH_LANE near[l] /= count;
	for (int64_t i = 0; i < n; i++)
		EACH_LANE
		{
			float d = rows->at[i][l] - near[l];
			apart[l] += d;
			squares[l] += d * d;
		}
	EACH_LANE
	{
		float mean = is_rms ? 0 : apart[l] / count, rest = squares[l] - apart[l] * mean;
		apart[l] = mean;
		inverse[l] = 1 / sqrtf((rest > 0 ? rest : 0) / count + addend);
	}
	for (int64_t i = 0; i < n; i++) {
		float w = weight ? weight[i] : 1, b = bias ? bias[i] : 0;
		EACH_LANE rows->at[i][l] = (rows->at[i][l] - near[l] - apart[l]) * inverse[l] * w + b;
	}
	for (unsigned l = 0; l < LANES; l++)
		bad |= (uint32_t)!layer_norm_is_in_f32((double)squares[l], (double)n, eps) << l;
	return bad;
}
