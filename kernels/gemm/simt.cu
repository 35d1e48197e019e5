/*
 * Gemm at the rate of plain FMAs: f32, C = α·A·B + β·C. Measured on an H200, resident and cold, K = 1024, one
 * launch after another from a graph, µs beside cuBLAS (CUBLAS_PEDANTIC_MATH) in the same run. The block is
 * chosen by a model of its time.
 *
 *   block, per thread, groups      chosen at, M = N  bound                                 simt  cublas
 *   32×32, 4×4, 1, K in 8 blocks   128               launch, a copy's latency and the sum  5.16  6.92
 *   32×32, 8×4, 4, K in 2 blocks   256               the same                              8.71  9.42
 *   64×64, 8×8, 4, K in 2 blocks   512               latency, the sum of 8 parts           17.2  19.6
 *   64×64, 8×8, 4                  1024              two blocks on most multiprocessors    50.7  60.3
 *   simt_large.cu                  2048              see there                             169.6 173.5
 *                                  4096                                                    661   690
 *                                  8192                                                    2606  2732
 *                                  16384                                                   10094 10685
 *
 * That is 54.5 TFLOP/s at 16384², and 1.11 × cuBLAS in the geometric mean. Overlapping launches (overlap.cuh)
 * save 1 µs each.
 *
 * The copy engine brings only lines that begin at multiples of 16 bytes. Boxes that begin within 16 bytes of
 * lines of every fourth raise an illegal instruction. Other lines are loaded element by element: up to
 * 2.1 × cuBLAS where it takes less than 10 µs, half of it beyond 40 µs.
 *
 * Random shapes, and what else was tried: docs/lab/gemm.md. The parts are in simt/: shape, tiles, sums, kernel,
 * launch, choice.
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

#include "gemm/simt/choice.cuh"

extern "C" uint64_t gemm_simt_workspace(const struct op_args *args)
{
	return simt_config_of(args).shape ? 0 : gemm_simt_large_workspace(args);
}

extern "C" double gemm_simt_ns(const struct op_args *args)
{
	return simt_config_of(args).ns;
}

extern "C" CUDA_LAUNCH(gemm_simt)
{
	simt_config config = simt_config_of(args);
	work w = {};
	int status;

	if (!config.shape && gemm_simt_large(args, launch, &status))
		return status;
	w.t = gemm_task_of(args);
	return (config.shape ? config.shape : choices)->launch(&w, config.splits, cuda_stream(launch));
}

extern "C" unsigned gemm_simt_together_max(const struct op_args *args)
{
	return goes_together(simt_config_of(args), args) ? TOGETHER : 1;
}

extern "C" CUDA_TOGETHER(gemm_simt_together)
{
	simt_config config = simt_config_of(args[0]);
	work_together w;

	if (!goes_together(config, args[0])) {
		int rc = launch->addresses ? KOPS_E_STATE : 0;

		for (unsigned i = 0; i < n && rc == 0; i++)
			rc = gemm_simt(args[i], launch);
		return rc;
	}
	w.t = gemm_task_of(args[0]);
	w.t.p.batch = n;
	w.where = operands_of_tasks<TOGETHER>(args, n, launch->addresses);
	bool aligned = gemm_has_aligned_lines(args[0]);
	bool wide = launch->over_link && is_for_wide(config, w.t.p, aligned);
	auto launch_blocks = wide ? launch_shape_together<wide_f64, PIECES> : config.shape->launch_together;

	return launch_blocks(&w, aligned, config.splits, cuda_stream(launch));
}
