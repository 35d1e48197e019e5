/*
 * ops.c: packs the ops of a job as they are added, by their descriptions (kernel.h). The calls of single ops
 * are in calls.c.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "libkops/base/base.h"
#include "libkops/base/view.h"
#include "libkops/job/ops.h"
#include "libkops/wire/link.h"

/* The field of proto/kops.proto that is packed by hand. */
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

static int check_view(kops_job *job, const struct op *op, unsigned i, const kops_view *view)
{
	const char *name = op->operands[i].name;
	if (!view->buffer)
		return client_fail(job->k, KOPS_E_INVALID,
		                   "op %u: operand %s of %s has no buffer; set kops_view.buffer to one from "
		                   "kops_alloc() or kops_import()",
		                   job->n_ops, name, op->name);
	if (view->buffer->k != job->k)
		return client_fail(job->k, KOPS_E_INVALID, "op %u: operand %s is in a buffer of another handle",
		                   job->n_ops, name);
	if (view->buffer->freed)
		return client_fail(job->k, KOPS_E_INVALID, "op %u: operand %s is in a freed buffer", job->n_ops,
		                   name);
	if (view->rank < 1 || view->rank > KOPS_RANK_MAX)
		return client_fail(job->k, KOPS_E_INVALID, "op %u: operand %s has rank %u, expected 1 to %d",
		                   job->n_ops, name, view->rank, KOPS_RANK_MAX);
	if (view->reserved[0] || view->reserved[1])
		return client_fail(
		    job->k, KOPS_E_INVALID,
		    "op %u: reserved members of operand %s must be 0; begin with kops_view v = {0}", job->n_ops,
		    name);
	return 0;
}

static bool is_absent(const struct op *op, unsigned i, const kops_view *view)
{
	return op->operands[i].is_optional && !view->buffer;
}

static int check_op(kops_job *job, const struct op *op, const kops_view *views, const char *kernel)
{
	int status = client_may_use(job->k);
	if (status < 0)
		return status;
	if (job->phase != PHASE_NEW)
		return client_fail(job->k, KOPS_E_STATE, "ops cannot be added after kops_submit()");
	if (job->n_ops >= job->k->jobs.ops_max)
		return client_fail(job->k, KOPS_E_INVALID, "the job is full: its limit is %llu ops",
		                   (unsigned long long)job->k->jobs.ops_max);
	if (kernel && !client_name_is_valid(kernel))
		return client_fail(job->k, KOPS_E_INVALID,
		                   "a kernel's name is at most 64 printable characters");
	for (unsigned i = 0; i < op->n_operands && status == 0; i++)
		if (!is_absent(op, i, &views[i]))
			status = check_view(job, op, i, &views[i]);
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
	uint8_t packed[CLIENT_OP_BYTES_MAX];
	size_t size = kops__v1__op__pack(op, packed);
	const size_t frame = 1 + 3; /* tag, length */
	if (job->bytes_len + frame + size > MESSAGE_BYTES_MAX)
		return client_fail(job->k, KOPS_E_INVALID, "the job is full: its message would exceed %d bytes",
		                   MESSAGE_BYTES_MAX);
	int status = client_job_reserve(job, frame + size + CLIENT_TAIL_BYTES);
	if (status < 0)
		return status;
	uint8_t *at = job->bytes + job->bytes_len;
	*at++ = TAG_SUBMIT_OPS;
	at += message_put_varint(at, size);
	memcpy(at, packed, size);
	job->bytes_len = (size_t)(at - job->bytes) + size;
	return 0;
}

/* ---- On the wire ---- */

union own_message {
	ProtobufCMessage base;
	char bytes[CLIENT_OWN_MESSAGE_BYTES];
	double aligned;
};

static void put_attribute(enum attribute_type type, double value, char *at)
{
	if (type == ATTRIBUTE_FLAG)
		memcpy(at, &(protobuf_c_boolean){value != 0}, sizeof(protobuf_c_boolean));
	else
		attribute_put(type, value, at);
}

/*
 * Packs an op as its own message. Returns false if that has no member for something that was given: then it is
 * older than that part of the op.
 */
static bool fill_own_message(const struct op *op, const ProtobufCMessageDescriptor *type,
                             const kops_view *views, Kops__V1__View *wire, const double *values,
                             union own_message *ret)
{
	const ProtobufCFieldDescriptor *field;
	type->message_init(&ret->base);
	for (unsigned i = 0; i < op->n_operands; i++) {
		if (is_absent(op, i, &views[i]))
			continue;
		field = protobuf_c_message_descriptor_get_field_by_name(type, op->operands[i].name);
		if (!field)
			return false;
		memcpy(ret->bytes + field->offset, &(Kops__V1__View *){&wire[i]}, sizeof(Kops__V1__View *));
	}
	for (unsigned i = 0; i < op->n_attributes; i++) {
		field = protobuf_c_message_descriptor_get_field_by_name(type, op->attributes[i].name);
		if (field)
			put_attribute(op->attributes[i].type, values[i], ret->bytes + field->offset);
		else if (values[i] != op->attributes[i].otherwise)
			return false;
	}
	return true;
}

static void fill_attribute(const struct op_attribute *a, double value, Kops__V1__Instance__Attribute *ret)
{
	kops__v1__instance__attribute__init(ret);
	ret->name = (char *)a->name;
	switch (a->type) {
	case ATTRIBUTE_NUMBER:
		ret->value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_NUMBER;
		ret->number = value;
		break;
	case ATTRIBUTE_COUNT:
		ret->value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_COUNT;
		ret->count = (uint64_t)value;
		break;
	case ATTRIBUTE_FLAG:
		ret->value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_FLAG;
		ret->flag = value != 0;
		break;
	case ATTRIBUTE_CHOICE:
		ret->value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_CHOICE;
		ret->choice = (char *)a->choices[(unsigned)value];
		break;
	}
}

/* Packs an op with all names. */
static int append_instance(kops_job *job, const struct op *op, const kops_view *views, Kops__V1__View *wire,
                           const double *values, Kops__V1__Op *msg)
{
	Kops__V1__Instance__Operand operands[OP_OPERANDS_MAX], *operand_list[OP_OPERANDS_MAX];
	Kops__V1__Instance__Attribute attributes[OP_ATTRIBUTES_MAX], *attribute_list[OP_ATTRIBUTES_MAX];
	Kops__V1__Instance instance = KOPS__V1__INSTANCE__INIT;

	for (unsigned i = 0; i < op->n_operands; i++) {
		if (is_absent(op, i, &views[i]))
			continue;
		kops__v1__instance__operand__init(&operands[i]);
		operands[i].name = (char *)op->operands[i].name;
		operands[i].view = &wire[i];
		operand_list[instance.n_operands++] = &operands[i];
	}
	for (unsigned i = 0; i < op->n_attributes; i++) {
		fill_attribute(&op->attributes[i], values[i], &attributes[i]);
		attribute_list[i] = &attributes[i];
	}
	instance.op = (char *)op->name;
	instance.operands = operand_list;
	instance.n_attributes = op->n_attributes;
	instance.attributes = attribute_list;
	msg->params_case = KOPS__V1__OP__PARAMS_INSTANCE;
	msg->instance = &instance;
	return append_op(job, msg);
}

static int append(kops_job *job, const struct op *op, const kops_view *views, const double *values,
                  const char *kernel)
{
	const ProtobufCFieldDescriptor *own =
	    protobuf_c_message_descriptor_get_field_by_name(&kops__v1__op__descriptor, op->name);
	Kops__V1__View wire[OP_OPERANDS_MAX];
	Kops__V1__Op msg = KOPS__V1__OP__INIT;
	union own_message message;
	for (unsigned i = 0; i < op->n_operands; i++)
		if (!is_absent(op, i, &views[i]))
			client_view_encode(&views[i], &wire[i]);
	if (kernel)
		msg.kernel = (char *)kernel;
	bool by_names = !own || !fill_own_message(op, own->descriptor, views, wire, values, &message);
	if (by_names && !job->k->jobs.instances)
		return client_fail(
		    job->k, KOPS_E_UNSUPPORTED,
		    "this kopsd is older than libkops and does not know %s%s; update and restart it", op->name,
		    own ? " with these operands and attributes" : "");
	if (by_names)
		return append_instance(job, op, views, wire, values, &msg);
	msg.params_case = (Kops__V1__Op__ParamsCase)own->id;
	memcpy((char *)&msg + own->offset, &(union own_message *){&message}, sizeof(union own_message *));
	return append_op(job, &msg);
}

/* ---- What it reads and writes ---- */

/* Returns true if the op reads the old content of output v, without having it as an input. */
static bool reads_output(const struct op *op, unsigned v, const double *values)
{
	if (!op->reads_output || op->operands[v].role != OPERAND_UPDATED)
		return false;
	struct op_args args = {.op = op};
	for (unsigned i = 0; i < op->n_attributes; i++)
		op_set_attribute(&args, i, values[i]);
	return op->reads_output(&args, v);
}

static void add_operands(kops_job *job, const struct op *op, const kops_view *views, const double *values)
{
	for (unsigned i = 0; i < op->n_operands; i++) {
		if (is_absent(op, i, &views[i]))
			continue;
		add_operand(job, &views[i], op_is_output(op, i));
		if (reads_output(op, i, values))
			add_operand(job, &views[i], false);
	}
}

int client_add_op(kops_job *job, const struct op *op, const kops_view *views, const double *values,
                  const char *kernel)
{
	int status = check_op(job, op, views, kernel);
	if (status < 0)
		return status;
	struct operand *grown = grow(job->operands, &job->operands_cap,
	                             job->n_operands + 2 * (size_t)op->n_operands, sizeof *job->operands);
	if (!grown)
		return client_fail(job->k, KOPS_E_NOMEM, "out of memory for a job");
	job->operands = grown;
	status = append(job, op, views, values, kernel);
	if (status < 0)
		return status;
	add_operands(job, op, views, values);
	job->n_ops++;
	return 0;
}
