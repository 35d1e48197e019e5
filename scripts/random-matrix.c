/* random-matrix COUNT SEED: COUNT floats in [-1, 1) on stdout, for the example. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	uint64_t state;
	long count;

	if (argc != 3) {
		fputs("usage: random-matrix COUNT SEED\n", stderr);
		return 2;
	}
	count = atol(argv[1]);
	state = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15u | 1;
	while (count-- > 0) {
		float value;

		/* xorshift64 (Marsaglia 2003); 24 bits fill a float's mantissa */
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		value = (float)(state >> 40) / (float)(1 << 23) - 1.0f;
		if (fwrite(&value, sizeof(value), 1, stdout) != 1)
			return 1;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
