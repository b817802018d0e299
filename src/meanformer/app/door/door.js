// The door: a token is handed over for the place of the page. Other tabs of this browser find the place again.

const TOKEN = "#token=";
const place = () => localStorage.getItem("place");

async function enter(token) {
  history.replaceState(null, "", "/"); // no token stays in the address
  const answer = await fetch("/enter", { method: "POST", body: token });
  const told = await answer.json();
  if (answer.ok) location.replace(told.place);
  else document.getElementById("words").textContent = told.words;
}

/** Only a click goes on: another site can lead here too, with a link that asks for much. */
function offer() {
  const again = document.getElementById("again");
  again.hidden = false;
  again.querySelector("button").addEventListener("click", () => location.replace(place() + location.hash));
}

// A new address that is pasted into this very tab differs behind the # alone, which does not load the page anew.
addEventListener("hashchange", () => location.hash.startsWith(TOKEN) && location.reload());
if (location.hash.startsWith(TOKEN)) await enter(location.hash.slice(TOKEN.length));
if (place() !== null && !location.pathname.startsWith(place())) offer();
