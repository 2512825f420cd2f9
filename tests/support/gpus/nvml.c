/* NVML as the driver's library exports it, for machines without a GPU. The GPUs are in the environment variable
 * FAKE_GPUS, separated by blanks: UUID,minor,percent,free memory[,d][,eN]; d: divided into parts (Multi-Instance GPU),
 * eN: every question about it is answered by error N. FAKE_NVML_INIT: what nvmlInit_v2 answers; FAKE_NVML_HANGS: after
 * how many seconds. NVIDIA's own Python binding (nvidia-ml-py 13, which calls nvmlInitWithFlags) reads the same from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16

typedef struct {
    char uuid[96];
    unsigned minor, percent;
    unsigned long long memory;
    int divided, error;
} gpu;

typedef struct { unsigned gpu, memory; } utilization;

typedef struct { unsigned long long total, free, used; } memory;

static gpu gpus[MOST];
static unsigned count;

int nvmlInit_v2(void) {
    const char *told = getenv("FAKE_GPUS"), *init = getenv("FAKE_NVML_INIT"), *hangs = getenv("FAKE_NVML_HANGS");
    char copy[4096], *rest = copy, *word;
    if (hangs) sleep(atoi(hangs));
    if (init && atoi(init)) return atoi(init);
    snprintf(copy, sizeof copy, "%s", told ? told : "");
    for (count = 0; count < MOST && (word = strsep(&rest, " ")) != NULL;) {
        gpu *one = &gpus[count];
        char *error = strstr(word, ",e");
        if (sscanf(word, "%95[^,],%u,%u,%llu", one->uuid, &one->minor, &one->percent, &one->memory) < 4) continue;
        one->divided = strstr(word, ",d") != NULL;
        one->error = error ? atoi(error + 2) : 0;
        count++;
    }
    return 0;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }

int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *found) { *found = count; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **found) {
    if (index >= count) return 2;
    *found = &gpus[index];
    return gpus[index].error;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **found) {
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(gpus[i].uuid, uuid)) { *found = &gpus[i]; return gpus[i].error; }
    return 6;
}

int nvmlDeviceGetUUID(gpu *one, char *uuid, unsigned size) { snprintf(uuid, size, "%s", one->uuid); return 0; }

int nvmlDeviceGetMinorNumber(gpu *one, unsigned *minor) { *minor = one->minor; return 0; }

int nvmlDeviceGetMigMode(gpu *one, unsigned *mode, unsigned *pending) {
    *mode = *pending = (unsigned)one->divided;
    return 0;
}

int nvmlDeviceGetUtilizationRates(gpu *one, utilization *found) {
    if (one->divided) return 3;
    found->gpu = one->percent;
    found->memory = 1;
    return 0;
}

int nvmlDeviceGetMemoryInfo(gpu *one, memory *found) {
    found->total = 1ull << 40;
    found->free = one->memory;
    found->used = found->total - one->memory;
    return 0;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
