#include "decode.h"

#include <inttypes.h>
#include <string.h>

#include "common/rules.h"

#define FIELDS_MAX 64 /* highest field number of Op, plus one */

/* The places of an op's operands and attributes in its own message; NOWHERE: it has no member for that. */
#define NOWHERE 0
struct form {
	const struct op *op;
	uint16_t message; /* offset of the pointer to it within Op */
	uint16_t operands[OP_OPERANDS_MAX], attributes[OP_ATTRIBUTES_MAX];
};

/* Indexed by Op.params_case. Only decode_open() writes it. */
static struct form forms[FIELDS_MAX];

/* ---- Finding where things are ---- */

static ProtobufCType type_of(const struct op_attribute *a)
{
	static const ProtobufCType types[] = {
	    [ATTRIBUTE_NUMBER] = PROTOBUF_C_TYPE_DOUBLE,
	    [ATTRIBUTE_COUNT] = PROTOBUF_C_TYPE_UINT32,
	    [ATTRIBUTE_FLAG] = PROTOBUF_C_TYPE_BOOL,
	    [ATTRIBUTE_CHOICE] = PROTOBUF_C_TYPE_ENUM,
	};

	return types[a->type];
}

/* may_lack: the message may be older than this part of the op, which clients then send by its name. */
static int find_member(const ProtobufCMessageDescriptor *message, const char *name, ProtobufCType type,
                       bool may_lack, uint16_t *ret, char why[WHY_BYTES])
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message, name);

	*ret = NOWHERE;
	if (!field && may_lack)
		return 0;
	if (!field || field->type != type || field->label == PROTOBUF_C_LABEL_REPEATED)
		return rules_refuse(why, KOPS_E_STATE, "%s has no member %s as its op describes it",
		                    message->name, name);
	*ret = (uint16_t)field->offset;
	return 0;
}

static int find_members(struct form *form, const ProtobufCMessageDescriptor *message, char why[WHY_BYTES])
{
	const struct op *op = form->op;
	int rc = 0;

	if (op->n_attributes > OP_ATTRIBUTES_MAX || op->n_operands > OP_OPERANDS_MAX ||
	    op->n_operands + op->n_attributes < message->n_fields)
		return rules_refuse(why, KOPS_E_STATE, "%s has %u members, its op describes others",
		                    message->name, message->n_fields);
	for (unsigned i = 0; i < op->n_operands && rc == 0; i++)
		rc = find_member(message, op->operands[i].name, PROTOBUF_C_TYPE_MESSAGE,
		                 op->operands[i].is_optional, &form->operands[i], why);
	for (unsigned i = 0; i < op->n_attributes && rc == 0; i++)
		rc = find_member(message, op->attributes[i].name, type_of(&op->attributes[i]),
		                 op->attributes[i].otherwise == 0, &form->attributes[i], why);
	return rc;
}

int decode_open(char why[WHY_BYTES])
{
	int rc = 0;

	for (unsigned i = 0; i < OP_COUNT && rc == 0; i++) {
		const ProtobufCFieldDescriptor *field =
		    protobuf_c_message_descriptor_get_field_by_name(&kops__v1__op__descriptor, ops[i]->name);
		struct form *form;

		if (!field || field->id >= FIELDS_MAX)
			continue;
		form = &forms[field->id];
		form->op = ops[i];
		form->message = (uint16_t)field->offset;
		rc = find_members(form, field->descriptor, why);
	}
	return rc;
}

/* ---- An op's own message ---- */

/* Copies a member of a message to the op's params. */
static void copy_attribute(const struct op_attribute *a, const void *from, char *params)
{
	protobuf_c_boolean flag;

	switch (a->type) {
	case ATTRIBUTE_NUMBER:
		memcpy(params + a->offset, from, sizeof(double));
		break;
	case ATTRIBUTE_COUNT:
		memcpy(params + a->offset, from, sizeof(uint32_t));
		break;
	case ATTRIBUTE_FLAG:
		memcpy(&flag, from, sizeof flag);
		memcpy(params + a->offset, &(bool){flag != 0}, sizeof(bool));
		break;
	case ATTRIBUTE_CHOICE:
		memcpy(params + a->offset, from, sizeof(int));
		break;
	}
}

static void read_form(const struct form *form, const char *message, struct op_args *args,
                      const Kops__V1__View *views[OP_OPERANDS_MAX])
{
	const struct op *op = form->op;

	for (unsigned i = 0; i < op->n_operands; i++)
		if (form->operands[i] != NOWHERE)
			memcpy(&views[i], message + form->operands[i], sizeof views[i]);
	for (unsigned i = 0; i < op->n_attributes; i++)
		if (form->attributes[i] != NOWHERE)
			copy_attribute(&op->attributes[i], message + form->attributes[i],
			               (char *)&args->params);
}

/* ---- An instance: all by name ---- */

/* Quotes a client's text in a sentence. */
#define QUOTED "\"%.40s\""

static int read_operand(const Kops__V1__Instance__Operand *msg, const struct op *op,
                        const Kops__V1__View *views[OP_OPERANDS_MAX], char why[WHY_BYTES])
{
	unsigned i = op_operand_index(op, msg->name);

	if (i == op->n_operands)
		return rules_refuse(why, KOPS_E_INVALID, "%s has no operand " QUOTED, op->name, msg->name);
	if (views[i])
		return rules_refuse(why, KOPS_E_INVALID, "operand %s of %s is given twice", msg->name,
		                    op->name);
	if (!msg->view)
		return rules_refuse(why, KOPS_E_INVALID, "operand %s of %s has no view", msg->name, op->name);
	views[i] = msg->view;
	return 0;
}

static int read_choice(const struct op_attribute *a, const char *name, char *params, char why[WHY_BYTES])
{
	unsigned i = attribute_choice(a, name);

	if (i == a->n_choices)
		return rules_refuse(why, KOPS_E_INVALID, "%s cannot be " QUOTED, a->name, name);
	attribute_put(a->type, i, params + a->offset);
	return 0;
}

static int read_count(const struct op_attribute *a, uint64_t count, char *params, char why[WHY_BYTES])
{
	if (count > UINT32_MAX)
		return rules_refuse(why, KOPS_E_INVALID, "%s is %" PRIu64 "; it must be from %.10g to %.10g",
		                    a->name, count, a->min, a->max);
	attribute_put(a->type, (double)count, params + a->offset);
	return 0;
}

/* Names of types for clients. */
static const struct {
	Kops__V1__Instance__Attribute__ValueCase wire;
	const char *name;
} kinds[] = {
    [ATTRIBUTE_NUMBER] = {KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_NUMBER, "a number"},
    [ATTRIBUTE_COUNT] = {KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_COUNT, "a count"},
    [ATTRIBUTE_FLAG] = {KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_FLAG, "a flag"},
    [ATTRIBUTE_CHOICE] = {KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_CHOICE, "a choice"},
};

static int read_value(const Kops__V1__Instance__Attribute *msg, const struct op_attribute *a, char *params,
                      char why[WHY_BYTES])
{
	if (msg->value_case != kinds[a->type].wire)
		return rules_refuse(why, KOPS_E_INVALID, "%s is %s, and nothing else", a->name,
		                    kinds[a->type].name);
	switch (a->type) {
	case ATTRIBUTE_NUMBER:
		copy_attribute(a, &msg->number, params);
		return 0;
	case ATTRIBUTE_COUNT:
		return read_count(a, msg->count, params, why);
	case ATTRIBUTE_FLAG:
		copy_attribute(a, &msg->flag, params);
		return 0;
	case ATTRIBUTE_CHOICE:
		return read_choice(a, msg->choice, params, why);
	}
	return KOPS_E_INVALID;
}

/* given: bit i is set if attribute i was given before. */
static int read_attribute(const Kops__V1__Instance__Attribute *msg, struct op_args *args, uint32_t *given,
                          char why[WHY_BYTES])
{
	const struct op *op = args->op;
	unsigned i = op_attribute_index(op, msg->name);

	if (i == op->n_attributes)
		return rules_refuse(why, KOPS_E_INVALID, "%s has no attribute " QUOTED, op->name, msg->name);
	if (*given >> i & 1)
		return rules_refuse(why, KOPS_E_INVALID, "attribute %s of %s is given twice", msg->name,
		                    op->name);
	*given |= 1u << i;
	return read_value(msg, &op->attributes[i], (char *)&args->params, why);
}

static int read_instance(const Kops__V1__Instance *msg, struct op_args *args,
                         const Kops__V1__View *views[OP_OPERANDS_MAX], char why[WHY_BYTES])
{
	uint32_t given = 0;
	int rc = 0;

	args->op = op_by_name(msg->op);
	if (!args->op)
		return rules_refuse(why, KOPS_E_INVALID, "there is no op " QUOTED, msg->op);
	op_set_defaults(args);
	for (size_t i = 0; i < msg->n_operands && rc == 0; i++)
		rc = read_operand(msg->operands[i], args->op, views, why);
	for (size_t i = 0; i < msg->n_attributes && rc == 0; i++)
		rc = read_attribute(msg->attributes[i], args, &given, why);
	return rc;
}

int decode_op(const Kops__V1__Op *msg, struct op_args *args, const Kops__V1__View *views[OP_OPERANDS_MAX],
              char why[WHY_BYTES])
{
	unsigned number = (unsigned)msg->params_case;
	const char *message;

	if (msg->params_case == KOPS__V1__OP__PARAMS_INSTANCE)
		return read_instance(msg->instance, args, views, why);
	if (number >= FIELDS_MAX || !forms[number].op)
		return rules_refuse(why, KOPS_E_INVALID, "an op without parameters");
	args->op = forms[number].op;
	op_set_defaults(args);
	memcpy(&message, (const char *)msg + forms[number].message, sizeof message);
	read_form(&forms[number], message, args, views);
	return 0;
}

static size_t views_max(const Kops__V1__Op *msg)
{
	unsigned number = (unsigned)msg->params_case;

	if (msg->params_case == KOPS__V1__OP__PARAMS_INSTANCE)
		return msg->instance->n_operands < OP_OPERANDS_MAX ? msg->instance->n_operands
		                                                   : OP_OPERANDS_MAX;
	return number < FIELDS_MAX && forms[number].op ? forms[number].op->n_operands : 0;
}

size_t decode_views_max(const Kops__V1__Submit *submit)
{
	size_t n = 0;

	for (size_t i = 0; i < submit->n_ops; i++)
		n += views_max(submit->ops[i]);
	return n;
}
