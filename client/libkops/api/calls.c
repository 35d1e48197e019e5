/*
 * calls.c: the calls of single ops. Made by scripts/gen-ops from the descriptions in kernels/OP/op.c; do not
 * edit it.
 */
#include "common/rules.h"
#include "libkops/api/one_op.h"
#include "libkops/job/ops.h"

int kops_job_gemm(kops_job *job, double alpha, kops_view a, kops_view b, double beta, kops_view c,
                  kops_precision precision, const char *kernel)
{
	const kops_view operands[] = {a, b, {0}, c};
	const double attributes[] = {alpha, beta, precision, 0, 0, 0, 0, 0};
	return client_add_op(job, &op_gemm, operands, attributes, kernel);
}

int kops_job_softmax(kops_job *job, kops_view x, kops_view y, double scale, bool log, const char *kernel)
{
	const kops_view operands[] = {x, {0}, y};
	const double attributes[] = {scale, log};
	return client_add_op(job, &op_softmax, operands, attributes, kernel);
}

int kops_job_transpose(kops_job *job, kops_view x, kops_view y, const char *kernel)
{
	const kops_view operands[] = {x, y};
	return client_add_op(job, &op_transpose, operands, NULL, kernel);
}

int kops_job_add(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel)
{
	const kops_view operands[] = {a, b, y};
	return client_add_op(job, &op_add, operands, NULL, kernel);
}

int kops_job_copy(kops_job *job, kops_view x, kops_view y, const char *kernel)
{
	const kops_view operands[] = {x, y};
	return client_add_op(job, &op_copy, operands, NULL, kernel);
}

int kops_job_reduce(kops_job *job, kops_view x, kops_view y, kops_reduction kind, const char *kernel)
{
	const kops_view operands[] = {x, y};
	const double attributes[] = {kind};
	return client_add_op(job, &op_reduce, operands, attributes, kernel);
}

int kops_job_multiply(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel)
{
	const kops_view operands[] = {a, b, y};
	return client_add_op(job, &op_multiply, operands, NULL, kernel);
}

int kops_job_layer_norm(kops_job *job, kops_view x, kops_view weight, kops_view bias, kops_view y, double eps,
                        const char *kernel)
{
	const kops_view operands[] = {x, weight, bias, {0}, y, {0}};
	const double attributes[] = {eps};
	return client_add_op(job, &op_layer_norm, operands, attributes, kernel);
}

int kops_job_gather(kops_job *job, kops_view x, kops_view indices, kops_view y, const char *kernel)
{
	const kops_view operands[] = {x, indices, y};
	return client_add_op(job, &op_gather, operands, NULL, kernel);
}

int kops_job_rms_norm(kops_job *job, kops_view x, kops_view weight, kops_view y, double eps, const char *kernel)
{
	const kops_view operands[] = {x, weight, {0}, {0}, y, {0}};
	const double attributes[] = {eps};
	return client_add_op(job, &op_rms_norm, operands, attributes, kernel);
}

int kops_job_subtract(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel)
{
	const kops_view operands[] = {a, b, y};
	return client_add_op(job, &op_subtract, operands, NULL, kernel);
}

int kops_job_unary(kops_job *job, kops_view x, kops_view y, kops_unary_function function, double scale,
                   double low, double high, const char *kernel)
{
	const kops_view operands[] = {x, y};
	const double attributes[] = {function, scale, low, high};
	return client_add_op(job, &op_unary, operands, attributes, kernel);
}

int kops_job_attention(kops_job *job, kops_view q, kops_view k, kops_view v, kops_view mask, kops_view o,
                       kops_attention_causal causal, const char *kernel)
{
	const kops_view operands[] = {q, k, v, mask, {0}, o, {0}};
	const double attributes[] = {0, causal, 0};
	return client_add_op(job, &op_attention, operands, attributes, kernel);
}

int kops_job_arg_reduce(kops_job *job, kops_view x, kops_view y, kops_arg_reduce_kind kind, const char *kernel)
{
	const kops_view operands[] = {x, y};
	const double attributes[] = {kind};
	return client_add_op(job, &op_arg_reduce, operands, attributes, kernel);
}

int kops_job_top_k(kops_job *job, kops_view x, kops_view values, kops_view indices, uint32_t k,
                   kops_top_k_kind kind, kops_top_k_order order, const char *kernel)
{
	const kops_view operands[] = {x, values, indices};
	const double attributes[] = {k, kind, order};
	return client_add_op(job, &op_top_k, operands, attributes, kernel);
}

int kops_job_search(kops_job *job, kops_view queries, kops_view base, kops_view values, kops_view indices,
                    uint32_t k, kops_search_metric metric, const char *kernel)
{
	const kops_view operands[] = {queries, base, {0}, values, indices};
	const double attributes[] = {k, metric};
	return client_add_op(job, &op_search, operands, attributes, kernel);
}

int kops_job_cholesky(kops_job *job, kops_view a, kops_view factor, kops_view info, bool upper, bool keep,
                      const char *kernel)
{
	const kops_view operands[] = {a, factor, info};
	const double attributes[] = {upper, keep};
	return client_add_op(job, &op_cholesky, operands, attributes, kernel);
}

int kops_job_triangular_solve(kops_job *job, kops_view a, kops_view b, kops_view x, bool upper, bool unit,
                              bool right, const char *kernel)
{
	const kops_view operands[] = {a, b, x};
	const double attributes[] = {upper, unit, 0, right};
	return client_add_op(job, &op_triangular_solve, operands, attributes, kernel);
}

int kops_job_lu(kops_job *job, kops_view a, kops_view lu, kops_view pivots, kops_view info, const char *kernel)
{
	const kops_view operands[] = {a, lu, pivots, info};
	return client_add_op(job, &op_lu, operands, NULL, kernel);
}

int kops_softmax(kops *k, kops_view x, kops_view y, double scale)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_softmax(job, x, y, scale, false, NULL));
}

int kops_transpose(kops *k, kops_view x, kops_view y)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_transpose(job, x, y, NULL));
}

int kops_add(kops *k, kops_view a, kops_view b, kops_view y)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_add(job, a, b, y, NULL));
}

int kops_copy(kops *k, kops_view x, kops_view y)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_copy(job, x, y, NULL));
}

int kops_reduce(kops *k, kops_view x, kops_view y, kops_reduction kind)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_reduce(job, x, y, kind, NULL));
}

int kops_multiply(kops *k, kops_view a, kops_view b, kops_view y)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_multiply(job, a, b, y, NULL));
}

int kops_layer_norm(kops *k, kops_view x, kops_view weight, kops_view bias, kops_view y, double eps)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status
	                  : client_one_op_finish(k, kops_job_layer_norm(job, x, weight, bias, y, eps, NULL));
}

int kops_gather(kops *k, kops_view x, kops_view indices, kops_view y)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_gather(job, x, indices, y, NULL));
}

int kops_rms_norm(kops *k, kops_view x, kops_view weight, kops_view y, double eps)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_rms_norm(job, x, weight, y, eps, NULL));
}

int kops_subtract(kops *k, kops_view a, kops_view b, kops_view y)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_subtract(job, a, b, y, NULL));
}

int kops_unary(kops *k, kops_view x, kops_view y, kops_unary_function function, double scale, double low,
               double high)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	if (status < 0)
		return status;
	return client_one_op_finish(k, kops_job_unary(job, x, y, function, scale, low, high, NULL));
}

int kops_attention(kops *connection, kops_view q, kops_view k, kops_view v, kops_view mask, kops_view o,
                   kops_attention_causal causal)
{
	kops_job *job;
	int status = client_one_op_begin(connection, &job);
	if (status < 0)
		return status;
	return client_one_op_finish(connection, kops_job_attention(job, q, k, v, mask, o, causal, NULL));
}

int kops_arg_reduce(kops *k, kops_view x, kops_view y, kops_arg_reduce_kind kind)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_arg_reduce(job, x, y, kind, NULL));
}

int kops_top_k(kops *connection, kops_view x, kops_view values, kops_view indices, uint32_t k,
               kops_top_k_kind kind, kops_top_k_order order)
{
	kops_job *job;
	int status = client_one_op_begin(connection, &job);
	if (status < 0)
		return status;
	return client_one_op_finish(connection, kops_job_top_k(job, x, values, indices, k, kind, order, NULL));
}

int kops_search(kops *connection, kops_view queries, kops_view base, kops_view values, kops_view indices,
                uint32_t k, kops_search_metric metric)
{
	kops_job *job;
	int status = client_one_op_begin(connection, &job);
	if (status < 0)
		return status;
	return client_one_op_finish(connection,
	                            kops_job_search(job, queries, base, values, indices, k, metric, NULL));
}

int kops_cholesky(kops *k, kops_view a, kops_view factor, kops_view info, bool upper, bool keep)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status
	                  : client_one_op_finish(k, kops_job_cholesky(job, a, factor, info, upper, keep, NULL));
}

int kops_triangular_solve(kops *k, kops_view a, kops_view b, kops_view x, bool upper, bool unit, bool right)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	if (status < 0)
		return status;
	return client_one_op_finish(k, kops_job_triangular_solve(job, a, b, x, upper, unit, right, NULL));
}

int kops_lu(kops *k, kops_view a, kops_view lu, kops_view pivots, kops_view info)
{
	kops_job *job;
	int status = client_one_op_begin(k, &job);
	return status < 0 ? status : client_one_op_finish(k, kops_job_lu(job, a, lu, pivots, info, NULL));
}
