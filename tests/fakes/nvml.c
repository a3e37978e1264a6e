/*
 * A stand-in for libnvidia-ml.so.1, steered by a text file that a test replaces while
 * the program under test runs. Compiled against NVIDIA's own nvml.h, so a prototype or
 * structure that differs from the real one does not build.
 *
 * The path of the file is in the environment variable FAKE_NVML_STATE; with FAKE_NVML_STEADY
 * set it is read once. One fact a line:
 *
 *   count N                       GPUs the driver lists (default 1)
 *   init CODE                     nvmlInit answers this code
 *   driver TEXT                   driver version
 *   gpu G util PERCENT            G is an index, or * for all
 *   gpu G mem USED_MIB TOTAL_MIB
 *   gpu G power MILLIWATT         gpu G energy MILLIJOULE
 *   gpu G proc PID MIB            one more process holds the GPU (MIB -1: not said)
 *   gpu G name TEXT
 *   gpu G mig 0|1|-1              -1: the mode query is not supported (the default)
 *   gpu G uuid TEXT               (default GPU-5eed0000-0000-4000-8000-00000000000G)
 *   gpu G slice USED_MIB TOTAL_MIB  one more MIG instance; its place among them is its number S
 *   gpu G sliceproc S PID MIB     one more process on instance S
 *   gpu G graphics PID            one more process that draws
 *   gpu G rate PERCENT            the rate of now, where it is not what the sample buffer says
 *   gpu G migmax N                how many instances there is room for (default 7)
 *   gpu G reset N                 it was reset so often: lost to any session that was opened before the last time
 *   gpu G buffer 0|1              0: no sample buffer on this product
 *   gpu G memv2 0|1               0: only the old memory call
 *   err G FUNCTION CODE           that call on that GPU fails; FUNCTION is the C name, G may be *
 *   delay G FUNCTION MS           that call on that GPU takes so long
 */
#include <nvml.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GPUS = 16, MOST_PROCS = 16, MOST_SLICES = 8, MOST_RULES = 128, SAMPLE_US = 166667, BUFFER = 100, RESERVED_MIB = 512 };

typedef struct {
    unsigned util, power;
    unsigned long long used_mib, total_mib, energy;
    int mig, buffer, memv2, procs, slices, draws, rate, migmax, reset;
    unsigned pid[MOST_PROCS], draw_pid[MOST_PROCS];
    long long proc_mib[MOST_PROCS];
    struct {
        unsigned long long used_mib, total_mib;
        int procs;
        unsigned pid[MOST_PROCS];
        long long proc_mib[MOST_PROCS];
    } slice[MOST_SLICES];
    char name[96], uuid[64];
} Gpu;

typedef struct {
    int gpu, value;
    char function[64];
} Rule;

typedef struct {
    int count, init, errors, delays;
    char driver[64];
    Gpu gpu[MOST_GPUS];
    Rule error[MOST_RULES], delay[MOST_RULES];
} World;

static World world;
static struct stat read_as;
static int is_read, sessions, reset_at_init[MOST_GPUS];
static char handles[MOST_GPUS * (1 + MOST_SLICES)]; /* GPU i's handle is the address of handles[i]; then come the slices */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void set_gpu(Gpu *g, const char *line) {
    unsigned pid;
    long long mib;
    if (sscanf(line, "util %u", &g->util) == 1) return;
    if (sscanf(line, "mem %llu %llu", &g->used_mib, &g->total_mib) == 2) return;
    if (sscanf(line, "power %u", &g->power) == 1) return;
    if (sscanf(line, "energy %llu", &g->energy) == 1) return;
    if (sscanf(line, "mig %d", &g->mig) == 1) return;
    if (sscanf(line, "rate %d", &g->rate) == 1) return;
    if (sscanf(line, "migmax %d", &g->migmax) == 1) return;
    if (sscanf(line, "reset %d", &g->reset) == 1) return;
    if (sscanf(line, "buffer %d", &g->buffer) == 1) return;
    if (sscanf(line, "memv2 %d", &g->memv2) == 1) return;
    if (sscanf(line, "name %95[^\n]", g->name) == 1) return;
    if (sscanf(line, "uuid %63s", g->uuid) == 1) return;
    if (sscanf(line, "graphics %u", &pid) == 1 && g->draws < MOST_PROCS) {
        g->draw_pid[g->draws++] = pid;
        return;
    }
    int s;
    unsigned long long used, total;
    if (sscanf(line, "sliceproc %d %u %lld", &s, &pid, &mib) == 3 && s >= 0 && s < g->slices && g->slice[s].procs < MOST_PROCS) {
        g->slice[s].pid[g->slice[s].procs] = pid;
        g->slice[s].proc_mib[g->slice[s].procs++] = mib;
        return;
    }
    if (sscanf(line, "slice %llu %llu", &used, &total) == 2 && g->slices < MOST_SLICES) {
        g->slice[g->slices].used_mib = used;
        g->slice[g->slices++].total_mib = total;
        return;
    }
    if (sscanf(line, "proc %u %lld", &pid, &mib) == 2 && g->procs < MOST_PROCS) {
        g->pid[g->procs] = pid;
        g->proc_mib[g->procs++] = mib;
        return;
    }
    fprintf(stderr, "fake nvml: cannot read 'gpu %s'\n", line);
}

static void take_line(const char *line) {
    char who[8];
    Rule rule;
    int at = 0;
    if (*line == '#' || *line == '\n' || !*line) return;
    if (sscanf(line, "count %d", &world.count) == 1 || sscanf(line, "init %d", &world.init) == 1) return;
    if (sscanf(line, "driver %63s", world.driver) == 1) return;
    if (sscanf(line, "gpu %7s %n", who, &at) == 1 && at > 0) {
        for (int i = 0; i < MOST_GPUS; i++)
            if (*who == '*' || atoi(who) == i) set_gpu(&world.gpu[i], line + at);
        return;
    }
    if (sscanf(line, "err %7s %63s %d", who, rule.function, &rule.value) == 3 && world.errors < MOST_RULES) {
        rule.gpu = *who == '*' ? -1 : atoi(who);
        world.error[world.errors++] = rule;
        return;
    }
    if (sscanf(line, "delay %7s %63s %d", who, rule.function, &rule.value) == 3 && world.delays < MOST_RULES) {
        rule.gpu = *who == '*' ? -1 : atoi(who);
        world.delay[world.delays++] = rule;
        return;
    }
    fprintf(stderr, "fake nvml: cannot read '%s'\n", line);
}

static void look(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now = {0};
    if (is_read && getenv("FAKE_NVML_STEADY")) return; /* a benchmark does not measure our own looks at the file */
    int there = path && stat(path, &now) == 0;
    if (is_read && (!there || (now.st_ino == read_as.st_ino && now.st_size == read_as.st_size &&
                               now.st_mtim.tv_sec == read_as.st_mtim.tv_sec && now.st_mtim.tv_nsec == read_as.st_mtim.tv_nsec)))
        return;
    memset(&world, 0, sizeof world);
    world.count = 1;
    strcpy(world.driver, "580.65.06");
    for (int i = 0; i < MOST_GPUS; i++) {
        Gpu *g = &world.gpu[i];
        g->power = 60000;
        g->energy = 1000000;
        g->total_mib = 81920;
        g->mig = g->rate = -1;
        g->migmax = 7;
        g->buffer = g->memv2 = 1;
        strcpy(g->name, "NVIDIA H100 80GB HBM3");
    }
    FILE *file = there ? fopen(path, "r") : NULL;
    char line[256];
    while (file && fgets(line, sizeof line, file)) take_line(line);
    if (file) fclose(file);
    read_as = now;
    is_read = 1;
}

/* Every call begins here. On NVML_SUCCESS the lock is held. */
static nvmlReturn_t begin(const char *function, int gpu, int needs_session) {
    pthread_mutex_lock(&lock);
    look();
    int ms = 0;
    for (int i = 0; i < world.delays; i++)
        if ((world.delay[i].gpu < 0 || world.delay[i].gpu == gpu) && !strcmp(world.delay[i].function, function)) ms = world.delay[i].value;
    if (ms) {
        pthread_mutex_unlock(&lock);
        usleep(ms * 1000);
        pthread_mutex_lock(&lock);
    }
    nvmlReturn_t code = needs_session && !sessions ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
    for (int i = 0; i < world.errors && code == NVML_SUCCESS; i++)
        if ((world.error[i].gpu < 0 || world.error[i].gpu == gpu) && !strcmp(world.error[i].function, function))
            code = (nvmlReturn_t)world.error[i].value;
    if (code != NVML_SUCCESS) pthread_mutex_unlock(&lock);
    return code;
}

static nvmlReturn_t end(nvmlReturn_t code) {
    pthread_mutex_unlock(&lock);
    return code;
}

static nvmlReturn_t text(char *out, unsigned room, const char *value) {
    return end(snprintf(out, room, "%s", value) < (int)room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
}

#define SYSTEM()                                  \
    nvmlReturn_t code_ = begin(__func__, -1, 1);  \
    if (code_ != NVML_SUCCESS) return code_
/* A slice's handle stands for its GPU, with slice_ telling which one; -1: the GPU as a whole. */
#define DEVICE()                                                                            \
    int place_ = (int)((char *)device - handles), index_ = place_, slice_ = -1;             \
    if (place_ < 0 || place_ >= (int)sizeof handles) return NVML_ERROR_INVALID_ARGUMENT;    \
    if (place_ >= MOST_GPUS) index_ = (place_ - MOST_GPUS) / MOST_SLICES, slice_ = (place_ - MOST_GPUS) % MOST_SLICES; \
    (void)slice_;                                                                           \
    nvmlReturn_t code_ = begin(__func__, index_, 1);                                        \
    if (code_ != NVML_SUCCESS) return code_;                                                \
    Gpu *g = &world.gpu[index_];                                                            \
    if (g->reset != reset_at_init[index_]) return end(NVML_ERROR_GPU_IS_LOST);              \
    (void)g

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    nvmlReturn_t code = begin(__func__, -1, 0);
    if (code != NVML_SUCCESS) return code;
    if (world.init) return end((nvmlReturn_t)world.init);
    if (!sessions++)
        for (int i = 0; i < MOST_GPUS; i++) reset_at_init[i] = world.gpu[i].reset;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlShutdown(void) {
    SYSTEM();
    sessions--;
    const char *log = getenv("FAKE_NVML_LOG"); /* a test that wants to see a clean end */
    FILE *file = log ? fopen(log, "a") : NULL;
    if (file) {
        fputs("shutdown\n", file);
        fclose(file);
    }
    return end(NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t code) {
    static __thread char words[32];
    snprintf(words, sizeof words, "fake error %d", (int)code);
    return words;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    SYSTEM();
    return text(version, length, world.driver);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    SYSTEM();
    *count = (unsigned)world.count;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t code = begin(__func__, (int)index, 1);
    if (code != NVML_SUCCESS) return code;
    if ((int)index >= world.count || index >= MOST_GPUS) return end(NVML_ERROR_INVALID_ARGUMENT);
    *device = (nvmlDevice_t)&handles[index];
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    DEVICE();
    char name[64];
    if (slice_ >= 0)
        snprintf(name, sizeof name, "MIG-5eed0000-0000-4000-8000-%08d%04d", index_, slice_);
    else if (*g->uuid)
        snprintf(name, sizeof name, "%s", g->uuid);
    else
        snprintf(name, sizeof name, "GPU-5eed0000-0000-4000-8000-%012d", index_);
    return text(uuid, length, name);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    DEVICE();
    return text(name, length, g->name);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    DEVICE();
    if (g->mig == 1) return end(NVML_ERROR_NOT_SUPPORTED);
    rates->gpu = g->rate >= 0 ? (unsigned)g->rate : g->util;
    rates->memory = 0;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *kind,
                                  unsigned int *count, nvmlSample_t *samples) {
    DEVICE();
    if (g->mig == 1 || !g->buffer || type != NVML_GPU_UTILIZATION_SAMPLES) return end(NVML_ERROR_NOT_SUPPORTED);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    unsigned long long now = t.tv_sec * 1000000ULL + t.tv_nsec / 1000, newest = now - now % SAMPLE_US;
    unsigned found = 0, room = samples ? *count : BUFFER;
    for (int back = BUFFER - 1; back >= 0 && found < room; back--) {
        unsigned long long at = newest - (unsigned long long)back * SAMPLE_US;
        if (at <= since) continue;
        if (samples) {
            memset(&samples[found], 0, sizeof *samples);
            samples[found].timeStamp = at;
            samples[found].sampleValue.uiVal = g->util;
        }
        found++;
    }
    *kind = NVML_VALUE_TYPE_UNSIGNED_INT;
    *count = found;
    return end(found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    DEVICE();
    memory->total = g->total_mib << 20;
    memory->used = (g->used_mib + RESERVED_MIB) << 20; /* the old call counts the reserve as used */
    memory->free = memory->total - memory->used;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    DEVICE();
    if (!g->memv2) return end(NVML_ERROR_NOT_SUPPORTED);
    if (slice_ >= 0) {
        memory->total = g->slice[slice_].total_mib << 20;
        memory->used = g->slice[slice_].used_mib << 20;
        memory->free = memory->total - memory->used;
        memory->reserved = 0;
        return end(NVML_SUCCESS);
    }
    if (memory->version != nvmlMemory_v2) return end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory->total = g->total_mib << 20;
    memory->reserved = (unsigned long long)RESERVED_MIB << 20;
    memory->used = g->used_mib << 20;
    memory->free = memory->total - memory->used - memory->reserved;
    return end(NVML_SUCCESS);
}

static nvmlReturn_t list(int procs, const unsigned *pid, const long long *mib, unsigned int *count, nvmlProcessInfo_t *out) {
    unsigned room = *count, all = (unsigned)procs;
    for (unsigned i = 0; out && i < all && i < room; i++) {
        memset(&out[i], 0, sizeof *out);
        out[i].pid = pid[i];
        out[i].usedGpuMemory = !mib || mib[i] < 0 ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE : (unsigned long long)mib[i] << 20;
        out[i].gpuInstanceId = out[i].computeInstanceId = 0xFFFFFFFFu;
    }
    *count = all;
    return all > room || (all && !out) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out) {
    DEVICE();
    if (slice_ >= 0) return end(list(g->slice[slice_].procs, g->slice[slice_].pid, g->slice[slice_].proc_mib, count, out));
    return end(list(g->procs, g->pid, g->proc_mib, count, out));
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out) {
    DEVICE();
    return end(list(g->draws, g->draw_pid, NULL, count, out));
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out) {
    (void)out;
    DEVICE();
    *count = 0;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt) {
    DEVICE();
    *milliwatt = g->power;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoule) {
    DEVICE();
    *millijoule = g->energy;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    DEVICE();
    if (g->mig < 0) return end(NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = (unsigned)g->mig;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    DEVICE();
    *count = g->mig < 0 ? 0 : (unsigned)g->migmax;
    return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *slice) {
    DEVICE();
    if (g->mig != 1) return end(NVML_ERROR_NOT_SUPPORTED);
    if ((int)index >= g->slices) return end(NVML_ERROR_NOT_FOUND);
    *slice = (nvmlDevice_t)&handles[MOST_GPUS + index_ * MOST_SLICES + (int)index];
    return end(NVML_SUCCESS);
}
