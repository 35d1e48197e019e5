#include "utf8.h"

#include <stdbool.h>
#include <wchar.h>

unsigned utf8_decode(const char *at, uint32_t *ret_point)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)at;
	unsigned n = s[0] < 0x80 ? 1 : s[0] >> 5 == 0x6 ? 2 : s[0] >> 4 == 0xe ? 3 : s[0] >> 3 == 0x1e ? 4 : 0;
	uint32_t point = n > 1 ? s[0] & (0xffu >> (n + 1)) : s[0];

	for (unsigned i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		point = point << 6 | (s[i] & 0x3f);
	}
	*ret_point = point;
	bool surrogate = point >= 0xd800 && point < 0xe000;
	return n > 1 && (point < least[n] || point > 0x10ffff || surrogate) ? 0 : n;
}

/* wcwidth() knows characters beyond ASCII only if the locale does: see program_set_characters(). */
int utf8_columns(uint32_t point)
{
	int columns = wcwidth((wchar_t)point);

	return columns < 0 ? 1 : columns;
}
