// Work for `queuedriver broker pingpong`: npm install zeromq; node worker.js tcp://HOST:PORT
const zmq = require("zeromq");

function answer(document) {
  if (document.some((byte) => byte > 127))
    return ["", "ERROR", "1", "it is not ASCII"]; // The document is tried once more.
  return ["", "", document.toString().toUpperCase()];
}

async function main(address) {
  const socket = new zmq.Dealer({ receiveTimeout: 1000 });
  socket.connect(address);
  let frames = [];
  for (let word = "", silent = 0; word !== "EXIT"; ) {
    // After three seconds of silence the broker may have forgotten this worker.
    if (!frames.length) await socket.send(["", silent % 3 ? "PING" : "READY"]);
    else if (word !== "PONG") await socket.send(answer(frames.at(-1)));
    frames = await socket.receive().catch(() => []);
    word = frames.length === 2 ? frames[1].toString() : "";
    silent = frames.length ? 0 : silent + 1;
  }
}

main(process.argv[2]);
