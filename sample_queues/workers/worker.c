// Work for `queuedriver broker pingpong`: cc worker.c -lzmq -o worker; ./worker tcp://HOST:PORT
#include <string.h>
#include <zmq.h>

static void say(void *socket, const char *words, size_t length) {
    zmq_send(socket, "", 0, ZMQ_SNDMORE);
    zmq_send(socket, words, length, 0);
}

int main(int argc, char **argv) {
    void *socket = zmq_socket(zmq_ctx_new(), ZMQ_DEALER);
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &(int){1000}, sizeof(int));
    if (zmq_connect(socket, argv[argc - 1])) return 64;
    // After three seconds of silence the broker may have forgotten this worker.
    for (int silent = 0, frames = 0;; silent = frames ? 0 : silent + 1) {
        if (!frames) say(socket, silent % 3 ? "PING" : "READY", silent % 3 ? 4 : 5);
        for (frames = 0; !frames || zmq_msg_more(&frame); frames++)
            if (zmq_msg_recv(&frame, socket, 0) < 0) break;
        char *words = zmq_msg_data(&frame);
        int length = zmq_msg_size(&frame), word = frames == 2 && length == 4;
        if (word && !memcmp(words, "EXIT", 4)) return 0;
        if (!frames || (word && !memcmp(words, "PONG", 4))) continue;
        for (int i = 0; i < length; i++) words[i] -= words[i] >= 'a' && words[i] <= 'z' ? 32 : 0;
        zmq_send(socket, "", 0, ZMQ_SNDMORE);  // What follows is a result, be it one of the words.
        say(socket, words, length);
    }
}
