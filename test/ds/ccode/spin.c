// Says for how many microseconds the library would spin, then after each line of
// input once more, when it has spun in vain often enough to ask for the reason.
#include <stdio.h>

#include "../../../directsockets/preload/spin.h"

int main(void)
{
	struct spin s = {0};
	char line[16];
	do {
		for (int i = 0; i < 128; i++) // more than the library lets pass between two questions
			spin_result(&s, false);
		s = (struct spin){0};
		printf("%llu\n", (unsigned long long)(spin_ns(&s) / 1000));
		fflush(stdout);
	} while (fgets(line, sizeof line, stdin));
	return 0;
}
