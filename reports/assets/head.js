document.documentElement.className = "js";
(function () { var look = /[#&]theme=(light|dark)\b/.exec(location.hash); if (look) document.documentElement.dataset.theme = look[1]; })();
