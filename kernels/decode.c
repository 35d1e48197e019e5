#include "decode.h"

#include <stdio.h>
#include <string.h>

#define FIELDS_MAX     64 /* numbers of the fields of Op */
#define ATTRIBUTES_MAX 16

/* An op's own message: where its members are. */
struct form {
	const struct op *op;
	uint16_t message; /* in Op: a pointer to it */
	uint16_t operands[OP_OPERANDS_MAX], attributes[ATTRIBUTES_MAX];
};

/* By Op.params_case; written by decode_open() only. */
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

static int find_member(const ProtobufCMessageDescriptor *message, const char *name, ProtobufCType type,
                       uint16_t *ret, char why[WHY_BYTES])
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message, name);

	if (!field || field->type != type || field->label == PROTOBUF_C_LABEL_REPEATED) {
		snprintf(why, WHY_BYTES, "%s has no member %s as its op describes it", message->name, name);
		return KOPS_E_STATE;
	}
	*ret = (uint16_t)field->offset;
	return 0;
}

static int find_members(struct form *form, const ProtobufCMessageDescriptor *message, char why[WHY_BYTES])
{
	const struct op *op = form->op;
	int rc = 0;

	if (op->n_attributes > ATTRIBUTES_MAX || op->n_operands > OP_OPERANDS_MAX ||
	    op->n_operands + op->n_attributes != message->n_fields) {
		snprintf(why, WHY_BYTES, "%s has %u members, its op describes others", message->name,
		         message->n_fields);
		return KOPS_E_STATE;
	}
	for (unsigned i = 0; i < op->n_operands && rc == 0; i++)
		rc = find_member(message, op->operands[i].name, PROTOBUF_C_TYPE_MESSAGE, &form->operands[i],
		                 why);
	for (unsigned i = 0; i < op->n_attributes && rc == 0; i++)
		rc = find_member(message, op->attributes[i].name, type_of(&op->attributes[i]),
		                 &form->attributes[i], why);
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

/* Copies a member of a message to where the op has it. */
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
		memcpy(&views[i], message + form->operands[i], sizeof views[i]);
	for (unsigned i = 0; i < op->n_attributes; i++)
		copy_attribute(&op->attributes[i], message + form->attributes[i], (char *)&args->params);
}

int decode_op(const Kops__V1__Op *msg, struct op_args *args, const Kops__V1__View *views[OP_OPERANDS_MAX],
              char why[WHY_BYTES])
{
	unsigned number = (unsigned)msg->params_case;
	const char *message;

	if (number >= FIELDS_MAX || !forms[number].op) {
		snprintf(why, WHY_BYTES, "an op without parameters");
		return KOPS_E_INVALID;
	}
	args->op = forms[number].op;
	memcpy(&message, (const char *)msg + forms[number].message, sizeof message);
	read_form(&forms[number], message, args, views);
	return 0;
}
