"""German sentences in the manner of the news, to be translated into English.

A subject (`wer`, third person singular) meets a predicate by tense: `perfekt` follows "hat", `will`
follows a modal verb, `dass` is a whole subordinate clause and `lage` a whole main clause that may stand
alone.
"""

from __future__ import annotations

from paceline.train.prompt_grammar import entries

ORT = entries("""Kassel | Bremen | Leipzig | Graz | Zürich | Freiburg | Rostock | Mannheim | Linz |
Dresden | Aachen | Ulm | Bochum | Potsdam | Innsbruck | Lübeck | Augsburg | Erfurt | Trier | Oldenburg |
Würzburg | Regensburg | Flensburg | Chemnitz | Bern | Salzburg | Göttingen | Heidelberg | Konstanz |
Passau""")
LAND = entries("""Frankreich | Polen | Norwegen | Spanien | Kanada | Japan | Brasilien | Italien |
Schweden | Indien | Griechenland | Portugal | Finnland | Kenia | Mexiko | Australien | Dänemark | Irland |
Vietnam | Südafrika""")
TAG = entries("Montag | Dienstag | Mittwoch | Donnerstag | Freitag | Samstag | Sonntag")
MONAT = entries(
    "Januar | Februar | März | April | Mai | Juni | Juli | August | September | Oktober | November | Dezember"
)
NACHNAME = entries("""Brandt | Lehmann | Yilmaz | Petersen | Kowalski | Hofer | Schuster | Brunner | Vogel
| Arslan | Krüger | Lindner | Sommer | Baumann | Nguyen | Eckert | Thoma | Rösler | Wirth | Jansen""")
VORNAME = entries("""Anna | Jörg | Sabine | Mehmet | Katrin | Lukas | Ingrid | Tobias | Petra | Emre |
Ulrike | Stefan | Nadja | Florian | Helga | Dennis""")

WER = entries("""die Stadtverwaltung von {ort} | der Bürgermeister von {ort} | die Polizei in {ort} | das
Verkehrsministerium | ein Sprecher der Feuerwehr | die Universität {ort} | der Vorstand des Konzerns | die
Gewerkschaft der Lokführer | das Stadttheater {ort} | der Trainer der Mannschaft | die Ministerin für
Umwelt | das Amtsgericht {ort} | die Regierung in {land} | der Flughafen {ort} | eine Gruppe junger
Forscher aus {ort} | der Verband der Einzelhändler | die Krankenkasse | die Band um {vorname} {nachname} |
die Präsidentin des Parlaments | ein Landwirt aus der Nähe von {ort} | die Oppositionspartei | das Museum
für Naturkunde | der Hersteller von Elektroautos | eine Schulklasse aus {ort} | der Betreiber des
Kraftwerks | die Botschafterin von {land} | der Zoo in {ort} | die Zentralbank | das Startup aus {ort} |
der Fußballverein aus {ort} | Professor {nachname} | Frau {nachname} vom Roten Kreuz | der Innenminister |
die Deutsche Bahn | der Chor der Gemeinde | das Statistische Bundesamt | der Mieterbund | die
Staatsanwaltschaft {ort}""")

WANN = entries("""am {tag} | am {1..28}. {monat} | vor {2..9} Wochen | gestern Abend | in der Nacht zum
{tag} | im vergangenen Jahr | kurz nach Mitternacht | Anfang {monat} | nach langen Verhandlungen |
überraschend | zum {2..9}0. Mal | seit {1985..2022} zum ersten Mal | trotz heftiger Kritik | wie erwartet
| in letzter Minute | während einer Sitzung""")
BALD = entries("""im kommenden {monat} | ab {2026..2035} | bis Ende {monat} | noch in dieser Woche | in
den nächsten {3..12} Monaten | nach der Sommerpause | schon am {tag} | schrittweise | gegen den Willen
vieler Anwohner | gemeinsam mit Partnern aus {land}""")

PERFEKT = entries("""ein neues Programm zur Förderung des Radverkehrs vorgestellt | den Vertrag mit einem
Unternehmen aus {land} gekündigt | die Eintrittspreise um {3..20} Prozent erhöht | vor den Folgen der
Trockenheit gewarnt | {12..90} neue Arbeitsplätze versprochen | den alten Bahnhof für {2..48} Millionen
Euro verkauft | eine Studie über den Schlaf von Jugendlichen veröffentlicht | gegen das Urteil Berufung
eingelegt | die Suche nach dem vermissten Wanderer eingestellt | den Bau einer Brücke über den Fluss
genehmigt | ein Gemälde aus dem {15..19}. Jahrhundert zurückgegeben | die Zahl der Flüge nach {land}
halbiert | auf einer Konferenz in {ort} mehr Geld für Kindergärten gefordert | den dritten Platz im
Wettbewerb erreicht | eine Prämie von {200..900} Euro angekündigt | das Gesetz zum Schutz der Mieter
abgelehnt | den Verdacht der Bestechung zurückgewiesen | mehrere Straßen wegen des Hochwassers gesperrt |
{3..60} junge Bäume im Stadtpark gepflanzt | die Produktion von Papier eingestellt | über {100..900}
Fundstücke aus der Bronzezeit gezeigt | eine Impfung gegen die seltene Krankheit entwickelt | den Rekord
aus dem Jahr {1970..2015} gebrochen | ein Konzert für die Opfer des Erdbebens gegeben | die Ursache des
Stromausfalls gefunden | sich für den Fehler entschuldigt | das Angebot aus {land} als zu niedrig
bezeichnet | einen Roman über die Nachkriegszeit geschrieben | den Haushalt für das kommende Jahr
beschlossen | ein Tempolimit vor allen Schulen eingeführt""")

WILL = entries("""weniger Kohle und mehr Wind nutzen | {2..40} Filialen schließen | die Gebühren für
Studierende senken | einen Radweg von {ort} nach {ort} bauen | enger mit {land} zusammenarbeiten | auf
Plastikbecher verzichten | das Gelände am Hafen neu gestalten | mehr Lehrkräfte einstellen | die
Öffnungszeiten verlängern | in künstliche Intelligenz investieren | alle Busse auf elektrischen Antrieb
umstellen | den Streit vor Gericht austragen | die Grenze zu {land} stärker kontrollieren | ein Zentrum
für ältere Menschen eröffnen | den Preis für Milch nicht weiter erhöhen | {2..30} Wohnungen für Familien
schaffen | das Spiel gegen {ort} wiederholen lassen | die Ergebnisse im {monat} veröffentlichen | auf die
Forderungen der Streikenden eingehen | den Wald besser vor Feuer schützen | neue Regeln für den Handel im
Internet vorschlagen | die Renten stabil halten | nicht mehr für das Amt kandidieren | eine Expedition in
die Arktis schicken | Daten der Kunden nur noch in {land} speichern""")

DASS = entries("""die Arbeitslosigkeit im {monat} gesunken ist | der Winter milder wird als erwartet | die
Verletzten außer Lebensgefahr sind | das Wasser aus der Leitung unbedenklich ist | die Verhandlungen mit
{land} gescheitert sind | der Täter allein gehandelt hat | immer mehr junge Leute aufs Land ziehen | die
Preise für Strom weiter steigen werden | niemand die Verantwortung übernehmen möchte | die Reparatur
mindestens {3..18} Monate dauert | das Medikament bei Kindern nicht wirkt | das Dorf bald wieder einen
Laden bekommt | die Mannschaft trotz der Niederlage zufrieden ist | der Fund älter ist als die Pyramiden |
die Insel vom Tourismus zu abhängig ist | ein Kompromiss noch möglich ist | es in {ort} zu wenige Ärzte
gibt | der Verein den Stürmer aus {land} nicht halten kann | die Wahl verschoben werden muss | viele
Betriebe keine Lehrlinge finden""")

LAGE = entries("""die Stimmung in {ort} war gut | an der Küste wehte ein stürmischer Wind | der Unfall
geschah auf der Autobahn bei {ort} | mehr als {20..900} Menschen kamen zur Eröffnung | die Ausstellung ist
bis {monat} zu sehen | das Hotel liegt nur wenige Minuten vom Strand entfernt | die Zimmer sind sauber,
aber etwas klein | für das Frühstück werden {6..25} Euro berechnet | der Schaden beträgt rund
{20..900}.000 Euro | die Straße nach {ort} bleibt gesperrt | das Essen in {land} ist besser als sein Ruf |
der kleine Laden gehört seit {1900..1990} derselben Familie | die Kinder warteten geduldig auf den Zug |
im Tal liegt noch Schnee | beide Seiten schweigen über den Inhalt des Abkommens | ein Zeuge meldete sich
erst nach {2..9} Tagen | das Buch ist in {3..40} Sprachen erschienen | der Aktienkurs fiel um
{2..9},{1..9} Prozent | die Nachfrage aus {land} wächst seit Monaten | kaum jemand rechnete mit diesem
Ergebnis | im Stadion sangen die Fans bis zum Schluss | die Kirche wurde im Jahr {1100..1890} gebaut | der
Angeklagte schwieg zu den Vorwürfen | die Wege sind gut markiert und auch für Anfänger geeignet | nach der
Pause fiel das entscheidende Tor""")

ZITAT = entries("""Wir haben keine Zeit zu verlieren | Das ist ein guter Tag für {ort} | So etwas habe ich
in {20..40} Jahren nicht erlebt | Es geht nicht um Geld, sondern um Vertrauen | Ich freue mich auf die
neue Aufgabe | Niemand muss sich Sorgen machen | Am Ende entscheidet das Publikum | Wir lernen aus unseren
Fehlern | Die Kinder brauchen Platz zum Spielen | Der Sieg war verdient | Man sollte diese Zahlen mit
Vorsicht lesen | Ohne Hilfe aus {land} hätten wir es nicht geschafft""")

GRUND = entries("""weil das Geld fehlt | obwohl die Zahlen dagegen sprechen | damit die Kosten nicht
weiter steigen | wenn das Parlament zustimmt | nachdem die Anwohner protestiert hatten | weil immer
weniger Gäste kommen | falls das Wetter es zulässt | ohne einen Grund zu nennen | um Energie zu sparen |
da die alte Anlage zu teuer ist""")

GERMAN = entries("""{^wer} hat {wann} {perfekt}. | {^wann} hat {wer} {perfekt}. | {^wer} hat {perfekt},
{grund}. | {^wer} will {bald} {will}. | {^bald} soll {wer} {will}. | {^wer} möchte {will}, {grund}. |
{^wer} teilte {wann} mit, dass {dass}. | Nach Angaben von {vorname} {nachname} steht fest, dass {dass}. |
Viele Menschen in {ort} glauben, dass {dass}. | Es ist kein Geheimnis, dass {dass}. | {^lage}. | {^lage},
und {lage}. | {^lage}; {wer} hat {wann} {perfekt}. | „{zitat}“, sagte {vorname} {nachname} {wann}. |
„{zitat}“, erklärte {wer}. | {^wer} bestritt, dass {dass}. | Ob {wer} wirklich {will} wird, ist noch
offen. | Wie die Zeitung aus {ort} berichtet, hat {wer} {perfekt}. | {vorname} {nachname}, {18..79}, lebt
in {ort} und arbeitet seit {2..30} Jahren in einem Betrieb, der Waren nach {land} liefert. | Während {wer}
{will} möchte, hat {wer} {perfekt}. | Warum hat {wer} {perfekt}? | Dass {dass}, überrascht {vorname}
{nachname} nicht. | Nicht nur in {land}, sondern auch in {ort} zeigt sich, dass {dass}. | {^wer} kann
{bald} nicht {will}, {grund}. | Einer Umfrage zufolge meinen {20..80} Prozent der Befragten, dass {dass}.
| {^wer} hat {wann} {perfekt}; außerdem soll {wer} {bald} {will}. | Zwischen {ort} und {ort} fährt {bald}
kein Zug, {grund}. | Je länger der Streit dauert, desto deutlicher wird, dass {dass}. | Seit dem {1..28}.
{monat} steht fest: {^wer} darf {will}. | Bei dem Treffen in {ort} waren sich alle einig, dass {dass},
aber {lage}.""")

TABLES = {name.lower(): table for name, table in list(globals().items()) if isinstance(table, tuple)}
